#!/usr/bin/env python3
"""The SBOM lists the components with the versions that their headers define, and unknown components are an error.

sbom_test.py BUILD_DIR COMPILER LIBRARY
"""

import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("sbom", SOURCE / "packaging/sbom.py")
sbom = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sbom)

# The versions defined by the headers, printed by the preprocessor.
VERSIONS = """
#define PCRE2_CODE_UNIT_WIDTH 8
#include <CLI/Version.hpp>
#include <boost/version.hpp>
#include <features.h>
#include <nlohmann/json.hpp>
#include <pcre2.h>
#include <utf8proc.h>
version CLI11 = CLI11_VERSION
version Boost = BOOST_LIB_VERSION
version glibc = __GLIBC__.__GLIBC_MINOR__
version libstdc++ = __GNUC__.__GNUC_MINOR__
version libgcc = __GNUC__.__GNUC_MINOR__
version JSON for Modern C++ = NLOHMANN_JSON_VERSION_MAJOR.NLOHMANN_JSON_VERSION_MINOR.NLOHMANN_JSON_VERSION_PATCH
version PCRE2 = PCRE2_MAJOR.PCRE2_MINOR
version utf8proc = UTF8PROC_VERSION_MAJOR.UTF8PROC_VERSION_MINOR.UTF8PROC_VERSION_PATCH
"""


def header_versions(compiler):
    text = subprocess.run([compiler, "-std=c++20", "-E", "-P", "-x", "c++", "-"], input=VERSIONS, capture_output=True, text=True,
                          check=True).stdout
    found = re.findall(r"^version (.*) = (.*)$", text, re.M)
    return {name.replace(" ++", "++"): re.sub(r'[" ]', "", version).replace("_", ".") for name, version in found}


class Sbom(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            out, licences = pathlib.Path(folder, "sbom.json"), pathlib.Path(folder, "licences")
            subprocess.run([SOURCE / "packaging/sbom.py", "--build", BUILD, "--version", "1.2.3", "--compiler", COMPILER,
                            "--out", out, "--licences", licences, "bin/fovea", LIBRARY], check=True)
            cls.text = out.read_text()
            cls.licences = licences.read_text()
        cls.document = json.loads(cls.text)
        cls.packages = {package["name"]: package for package in cls.document["packages"]}

    def test_names_each_library_with_the_version_of_its_header(self):
        versions = header_versions(COMPILER)
        self.assertEqual(len(versions), 8, versions)
        for name, version in versions.items():
            self.assertTrue(self.packages[name]["versionInfo"].startswith(version), (name, version))
            self.assertIn("pkg:deb/debian/", self.packages[name]["externalRefs"][0]["referenceLocator"])

    def test_is_spdx(self):
        self.assertEqual(self.document["spdxVersion"], "SPDX-2.3")
        self.assertRegex(self.document["creationInfo"]["created"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        identifiers = [package["SPDXID"] for package in self.document["packages"]]
        self.assertEqual(len(identifiers), len(set(identifiers)))
        for identifier in identifiers:
            self.assertRegex(identifier, r"^SPDXRef-[A-Za-z0-9.-]+$")
        related = {relationship["relatedSpdxElement"] for relationship in self.document["relationships"]}
        self.assertEqual(related, set(identifiers))
        self.assertEqual(self.packages["fovea"]["versionInfo"], "1.2.3")

    def test_says_what_is_linked_and_how(self):
        how = {relationship["relatedSpdxElement"]: relationship["relationshipType"]
               for relationship in self.document["relationships"]}
        self.assertEqual(how["SPDXRef-PCRE2"], "STATIC_LINK")
        self.assertEqual(how["SPDXRef-glibc"], "DYNAMIC_LINK")

    def test_tests_are_not_inside(self):
        self.assertNotIn("gtest", self.text)
        self.assertNotIn("googletest", self.text.lower())

    def test_names_no_path_of_this_machine(self):
        self.assertNotIn(str(SOURCE), self.text + self.licences)

    def test_licences_have_the_notices(self):
        for notice in ("Apache License", "University of Cambridge", "Niels Lohmann", "Henry Schreiner", "GCC RUNTIME LIBRARY EXCEPTION"):
            self.assertIn(notice.lower(), self.licences.lower())


class Refusals(unittest.TestCase):
    def test_a_package_without_a_licence(self):
        with self.assertRaisesRegex(sbom.Unknown, "libgtest-dev is compiled or linked into Fovea"):
            sbom.component("libgtest-dev")

    def test_a_file_of_no_package(self):
        with self.assertRaisesRegex(sbom.Unknown, "/opt/unknown/thing.h is of no Debian package"):
            sbom.packages_of(["/opt/unknown/thing.h"])

    def test_a_vendored_file_that_is_not_listed(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder)
            (tree / "packaging").mkdir()
            (tree / "src/web").mkdir(parents=True)
            marked = {"path": "src/web/marked.min.js", "name": "marked", "version": "1.2", "license": "MIT",
                      "license_file": "src/web/marked.LICENSE"}
            (tree / "packaging/vendored.json").write_text(json.dumps([marked]))
            source, sbom.SOURCE = sbom.SOURCE, tree
            try:
                (tree / marked["path"]).write_text("")
                with self.assertRaisesRegex(sbom.Unknown, "lists src/web/marked.LICENSE, which is not there"):
                    sbom.vendored()
                (tree / marked["license_file"]).write_text("the licence of marked")
                self.assertEqual(sbom.vendored(), [marked])
                document = sbom.document("1", [], [marked])
                self.assertEqual(document["packages"][1]["name"], "marked")
                self.assertEqual(document["relationships"][1]["relationshipType"], "CONTAINS")
                (tree / "LICENSE").write_text("our own")
                self.assertIn("the licence of marked", sbom.licences([], [marked]))
                (tree / "src/web/markdown.min.js").write_text("")
                with self.assertRaisesRegex(sbom.Unknown, "src/web/markdown.min.js looks like another project's file"):
                    sbom.vendored()
            finally:
                sbom.SOURCE = source


if __name__ == "__main__":
    BUILD, COMPILER, LIBRARY = sys.argv[1:4]
    if not shutil.which("dpkg-query"):
        print("SKIPPED: dpkg-query is not installed")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
