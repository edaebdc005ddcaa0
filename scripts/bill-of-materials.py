#!/usr/bin/env python3
"""What the program is made of, from `cargo metadata`: the libraries that are linked into it.

  scripts/bill-of-materials.py              a bill of materials (CycloneDX 1.5, JSON)
  scripts/bill-of-materials.py --notices    the libraries' licences, in full

--target TRIPLE is the target that the program is built for (default: this machine's).
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent


def metadata(target):
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--format-version=1", "--locked", "--filter-platform", target]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def rustc(*arguments):
    return subprocess.run(["rustc", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def host():
    return re.search(r"^host: (.*)$", rustc("-vV"), re.M)[1]


def linked(data):
    """The packages that are linked into the program, and what each depends on; neither build nor test dependencies."""
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    packages = {package["id"]: package for package in data["packages"]}
    procedural = {
        identifier
        for identifier, package in packages.items()
        if any("proc-macro" in target["kind"] for target in package["targets"])
    }
    root = next(identifier for identifier, package in packages.items() if package["name"] == "balanza")
    found, waiting = {}, [root]
    while waiting:
        identifier = waiting.pop()
        if identifier in found:
            continue
        needed = [
            dependency["pkg"]
            for dependency in nodes[identifier]["deps"]
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]) and dependency["pkg"] not in procedural
        ]
        found[identifier] = needed
        waiting += needed
    order = sorted(found, key=lambda identifier: (packages[identifier]["name"], packages[identifier]["version"]))
    return root, [(packages[identifier], found[identifier]) for identifier in order], packages


def checksums():
    """Crates' SHA-256 from Cargo.lock, by name and version."""
    text = (ROOT / "Cargo.lock").read_text()
    form = re.compile(r'name = "(.*)"\nversion = "(.*)"\nsource = .*\nchecksum = "(.*)"')
    return {(name, version): checksum for name, version, checksum in form.findall(text)}


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, sums):
    entry = {
        "type": "application" if package["name"] == "balanza" else "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
        "licenses": [{"expression": (package["license"] or "NOASSERTION").replace("/", " OR ")}],
    }
    if package["description"]:
        entry["description"] = " ".join(package["description"].split())
    if (package["name"], package["version"]) in sums:
        entry["hashes"] = [{"alg": "SHA-256", "content": sums[package["name"], package["version"]]}]
    if package["repository"]:
        entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return entry


def standard_library():
    """Rust's own, which no metadata names."""
    version = re.search(r"^release: (.*)$", rustc("-vV"), re.M)[1]
    return {
        "type": "library",
        "bom-ref": "rust-std",
        "name": "rust-std",
        "version": version,
        "licenses": [{"expression": "MIT OR Apache-2.0"}],
        "externalReferences": [{"type": "vcs", "url": "https://github.com/rust-lang/rust"}],
    }


def bill(target):
    root, found, packages = linked(metadata(target))
    sums = checksums()
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": component(packages[root], sums),
            "properties": [{"name": "cargo:target", "value": target}],
        },
        "components": [component(package, sums) for package, _ in found if package["id"] != root] + [standard_library()],
        "dependencies": [
            {"ref": reference(package), "dependsOn": sorted({reference(packages[other]) for other in needed})}
            for package, needed in found
        ],
    }
    if epoch:
        time = datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc)
        document["metadata"]["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ")
    # A name for this document that depends on its content only.
    name = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True))
    document["serialNumber"] = f"urn:uuid:{name}"
    print(json.dumps(document, indent=2))


def notices(target):
    """Equal texts are printed once, with the names of all libraries that have them."""
    _, found, _ = linked(metadata(target))
    texts = {}
    for package, _ in found:
        if package["source"] is None:
            continue
        name = f"{package['name']} {package['version']} ({package['license']})"
        directory = pathlib.Path(package["manifest_path"]).parent
        files = [
            path
            for path in sorted(directory.rglob("*"))
            if path.is_file() and re.match(r"(?i)(licen[cs]e|copying|copyright|notice)", path.name) and path.suffix not in (".rs", ".py")
        ]
        own = {path.read_text(errors="replace").strip() for path in files} or {
            "The crate has no file with its licence; see its repository: " + (package["repository"] or "unknown")
        }
        for text in sorted(own):
            texts.setdefault(text, []).append(name)
    for text, names in sorted(texts.items(), key=lambda item: (item[1], item[0])):
        print("=" * 80, *names, "-" * 80, text, "", sep="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--notices", action="store_true")
    parser.add_argument("--target")
    arguments = parser.parse_args()
    (notices if arguments.notices else bill)(arguments.target or host())
