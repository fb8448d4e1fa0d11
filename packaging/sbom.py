#!/usr/bin/env python3
"""Writes what is inside the program and libfovea.so: an SBOM (SPDX 2.3, JSON) and the licences that go with them.

The list is read from the build, not kept by hand: the headers that the compiler read and the archives that the linker
read, each looked up in dpkg's database for its package and version. What has no entry below is an error, so that nothing
is linked in unseen.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import uuid

SOURCE = pathlib.Path(__file__).resolve().parent.parent
GCC = "GPL-3.0-or-later WITH GCC-exception-3.1"

# Debian's package (a pattern): name, licence as an SPDX expression, homepage, how Fovea has it.
COMPONENTS = {
    r"libboost1\.\d+-dev": ("Boost", "BSL-1.0", "https://www.boost.org", "STATIC_LINK"),
    r"libcli11-dev": ("CLI11", "BSD-3-Clause", "https://github.com/CLIUtils/CLI11", "STATIC_LINK"),
    r"nlohmann-json3-dev": ("JSON for Modern C++", "MIT", "https://github.com/nlohmann/json", "STATIC_LINK"),
    r"libpcre2-dev": ("PCRE2", "BSD-3-Clause AND BSD-2-Clause", "https://www.pcre.org", "STATIC_LINK"),
    r"libutf8proc-dev": ("utf8proc", "MIT AND Unicode-DFS-2015", "https://juliastrings.github.io/utf8proc", "STATIC_LINK"),
    r"libtomlplusplus-dev": ("toml++", "MIT", "https://marzer.github.io/tomlplusplus", "STATIC_LINK"),
    r"libedit-dev": ("libedit", "BSD-3-Clause", "https://www.thrysoee.dk/editline", "STATIC_LINK"),
    r"libncurses-dev": ("ncurses (tinfo)", "X11-distribute-modifications-variant", "https://invisible-island.net/ncurses",
                        "STATIC_LINK"),
    r"libbsd-dev": ("libbsd", "BSD-3-Clause AND BSD-2-Clause AND ISC AND MIT", "https://libbsd.freedesktop.org", "STATIC_LINK"),
    r"libmd-dev": ("libmd", "BSD-3-Clause AND BSD-2-Clause AND ISC AND Beerware", "https://www.hadrons.org/software/libmd",
                   "STATIC_LINK"),
    r"libstdc\+\+-\d+-dev": ("libstdc++", GCC, "https://gcc.gnu.org", "STATIC_LINK"),
    r"libgcc-\d+-dev": ("libgcc", GCC, "https://gcc.gnu.org", "STATIC_LINK"),
    r"libc6-dev": ("glibc", "LGPL-2.1-or-later", "https://www.gnu.org/software/libc", "DYNAMIC_LINK"),
    r"linux-libc-dev": ("Linux user-space headers", "GPL-2.0-only WITH Linux-syscall-note", "https://www.kernel.org",
                        "DEPENDS_ON"),
    r"cuda-cudart-dev.*": ("CUDA runtime", "LicenseRef-NVIDIA-CUDA-EULA", "https://developer.nvidia.com/cuda-toolkit",
                           "STATIC_LINK"),
}


class Unknown(Exception):
    """Something is in the build that this file does not know."""


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def external_files(build, targets, compiler):
    """The files outside of the source tree that these targets of the build are made of."""
    build = pathlib.Path(build).resolve()
    inputs = set(run("ninja", "-C", str(build), "-t", "inputs", *targets).split("\n"))
    found = {path for path in inputs if path.startswith("/")}
    wanted = False
    for line in run("ninja", "-C", str(build), "-t", "deps").split("\n"):
        if not line.startswith(" "):
            wanted = line.split(":")[0] in inputs
        elif wanted and line.strip().startswith("/"):
            found.add(line.strip())
    # What the compiler's driver adds to every link.
    for archive in ("libstdc++.a", "libgcc.a", "libgcc_eh.a", "crt1.o"):
        found.add(run(compiler, f"-print-file-name={archive}").strip())
    resolved = {os.path.realpath(path) for path in found}
    return sorted(path for path in resolved if not pathlib.Path(path).is_relative_to(SOURCE)
                  and not pathlib.Path(path).is_relative_to(build))


def packages_of(files):
    """The Debian packages that these files are of."""
    answer = subprocess.run(["dpkg-query", "--search", *files], capture_output=True, text=True).stdout
    package_of = {}
    for line in answer.splitlines():
        packages, _, path = line.partition(": ")
        package_of[path] = packages.split(",")[0].split(":")[0]
    for path in files:
        if path in package_of:
            continue
        if "/cuda" in path:
            package_of[path] = "cuda-cudart-dev"
        else:
            raise Unknown(f"{path} is of no Debian package; if it is to be linked in, packaging/sbom.py must learn of it")
    return sorted(set(package_of.values()))


def component(package):
    """Name, licence, homepage, relationship, version and purl of a Debian package."""
    known = [entry for pattern, entry in COMPONENTS.items() if re.fullmatch(pattern, package)]
    if not known:
        raise Unknown(f"{package} is compiled or linked into Fovea, and its licence does not stand in packaging/sbom.py")
    shown = subprocess.run(["dpkg-query", "--show", "--showformat", "${Version} ${Architecture}", package],
                           capture_output=True, text=True).stdout
    version, _, architecture = shown.partition(" ")
    purl = f"pkg:deb/debian/{package.replace('+', '%2B')}@{version}?arch={architecture}" if version else None
    return (*known[0], version or None, purl)


def vendored():
    """Files of other projects that lie in the tree, from packaging/vendored.json: a list of objects with path, name, version,
    license (an SPDX expression), license_file (its text, in the tree too) and, where there is one, homepage and purl.
    """
    listed = json.loads((SOURCE / "packaging/vendored.json").read_text())
    for entry in listed:
        for key in ("path", "license_file"):
            if not (SOURCE / entry[key]).exists():
                raise Unknown(f"packaging/vendored.json lists {entry[key]}, which is not there")
    names = {entry[key] for entry in listed for key in ("path", "license_file")}
    for pattern in ("*.min.js", "*.min.mjs", "*.min.css", "vendor/*", "third_party/*"):
        for path in (SOURCE / "src").rglob(pattern):
            name = str(path.relative_to(SOURCE))
            if path.is_file() and path.name != "README.md" and name not in names:
                raise Unknown(f"{name} looks like another project's file, and does not stand in packaging/vendored.json")
    return listed


def spdx_package(name, version, licence, homepage, purl):
    identifier = "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]+", "-", name)
    package = {
        "SPDXID": identifier,
        "name": name,
        "versionInfo": version or "NOASSERTION",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": licence,
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
    }
    if homepage:
        package["homepage"] = homepage
    if purl:
        package["externalRefs"] = [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]
    return package


def document(version, components, vendored_files):
    """The SPDX document; the same input makes the same bytes where SOURCE_DATE_EPOCH is set."""
    fovea = spdx_package("fovea", version, "Apache-2.0", None, f"pkg:generic/fovea@{version}")
    packages = [fovea]
    relationships = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                      "relatedSpdxElement": fovea["SPDXID"]}]
    for name, licence, homepage, how, its_version, purl in components:
        packages.append(spdx_package(name, its_version, licence, homepage, purl))
        relationships.append({"spdxElementId": fovea["SPDXID"], "relationshipType": how,
                              "relatedSpdxElement": packages[-1]["SPDXID"]})
    for entry in vendored_files:
        packages.append(spdx_package(entry["name"], entry["version"], entry["license"], entry.get("homepage"),
                                     entry.get("purl")))
        relationships.append({"spdxElementId": fovea["SPDXID"], "relationshipType": "CONTAINS",
                              "relatedSpdxElement": packages[-1]["SPDXID"]})
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", datetime.datetime.now(datetime.timezone.utc).timestamp()))
    content = hashlib.sha256(json.dumps([packages, relationships, seconds]).encode()).hexdigest()
    references = sorted({word for package in packages
                         for word in re.findall(r"LicenseRef-[A-Za-z0-9.-]+", package["licenseDeclared"])})
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"fovea-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/fovea-{version}-{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "creationInfo": {
            "created": datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: fovea-sbom"],
        },
        "packages": packages,
        "relationships": relationships,
        **({"hasExtractedLicensingInfos": [{"licenseId": name, "extractedText": "See the licence of the vendor."}
                                           for name in references]} if references else {}),
    }


def licences(packages, vendored_files):
    """The notices that licences ask for beside a program: Debian's copyright files, word for word.

    Boost's asks for none beside machine code, and of Linux's headers nothing but names is used.
    """
    parts = ["Fovea is under the Apache License 2.0:\n\n" + (SOURCE / "LICENSE").read_text(),
             "It has in it what follows.\n"]
    for package in packages:
        path = pathlib.Path("/usr/share/doc") / package / "copyright"
        name = component(package)[0]
        if path.exists() and name not in ("Boost", "Linux user-space headers"):
            parts.append(f"== {name} (Debian's {package})\n\n{path.read_text(errors='replace')}")
    for entry in vendored_files:
        text = SOURCE / entry["license_file"]
        parts.append(f"== {entry['name']}\n\n{text.read_text()}")
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, help="a build by ninja that is done")
    parser.add_argument("--version", required=True, help="of Fovea")
    parser.add_argument("--compiler", required=True, help="the C++ compiler of the build")
    parser.add_argument("--out", required=True, help="the SBOM's file")
    parser.add_argument("--licences", required=True, help="the licences' file")
    parser.add_argument("targets", nargs="+", help="what is shipped, as ninja names it")
    arguments = parser.parse_args()
    try:
        packages = packages_of(external_files(arguments.build, arguments.targets, arguments.compiler))
        sbom = document(arguments.version, [component(package) for package in packages], vendored())
        text = licences(packages, vendored())
    except (Unknown, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"sbom.py: {error}")
    pathlib.Path(arguments.out).write_text(json.dumps(sbom, indent=2) + "\n")
    pathlib.Path(arguments.licences).write_text(text)


if __name__ == "__main__":
    main()
