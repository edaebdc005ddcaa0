//go:build never

// Names the program to build, so that go.sum has all that it needs.
package main

import _ "github.com/summerwind/h2spec/cmd/h2spec"
