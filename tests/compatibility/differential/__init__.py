"""Sends the same requests to NGINX and to Balanza and compares the answers."""
