#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of count_results.py: what must never be counted as passed."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__))))
import count_results  # pylint: disable=wrong-import-position

GOOD = """<testsuites><testsuite name="A">
<testcase name="one" classname="A" status="run" result="completed"/>
<testcase name="two" classname="A" status="run" result="completed"/>
</testsuite></testsuites>"""
FAILING = """<testsuites><testsuite name="A">
<testcase name="one" classname="A" status="run" result="completed"/>
<testcase name="two" classname="A"><failure message="a.cc:3&#x0A;1 is not 2"/></testcase>
</testsuite></testsuites>"""
SKIPPING = """<testsuites><testsuite name="A">
<testcase name="one" classname="A" result="skipped"><skipped message="a.cc:9&#x0A;needs root"/>
</testcase></testsuite></testsuites>"""
DISABLED = """<testsuites><testsuite name="A">
<testcase name="DISABLED_one" classname="A" status="notrun" result="suppressed"/>
</testsuite></testsuites>"""
# What Bazel writes for a program that wrote no XML.
BY_BAZEL = """<testsuites><testsuite name="a/t"><testcase name="a/t" status="run"/>
</testsuite></testsuites>"""
BY_BAZEL_BAD = """<testsuites><testsuite name="a/t"><testcase name="a/t" status="run">
<error message="exited with error code 132"></error></testcase></testsuite></testsuites>"""
EMPTY = """<testsuites tests="0"></testsuites>"""


class CountResults(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.events = []
        self.finished = {"id": {"buildFinished": {}}, "finished": {"exitCode": {"name": "SUCCESS"}}}

    def tearDown(self):
        self.directory.cleanup()

    def path(self, name):
        return os.path.join(self.directory.name, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def add(self, label, status, xml):
        outputs = []
        if xml is not None:
            name = label.strip("/").replace("/", "_").replace(":", "_") + ".xml"
            outputs.append({"name": "test.xml", "uri": "file://" + self.write(name, xml)})
        self.events.append({
            "id": {"testResult": {"label": label}},
            "testResult": {"status": status, "testActionOutput": outputs,
                           "testAttemptDurationMillis": "1500"}})

    def count(self, *args, expect=None, privileged=None, gtest=None):
        lines = self.events + ([self.finished] if self.finished else [])
        events = self.write("events.json", "\n".join(map(json.dumps, lines)))
        argv = list(args)
        if expect is not None:
            argv += ["--expect", self.write("expect", "\n".join(expect))]
        if privileged is not None:
            argv += ["--privileged", self.write("privileged", "\n".join(privileged))]
        if gtest is not None:
            argv += ["--gtest", self.write("gtest", "\n".join(gtest))]
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = count_results.main(argv + [events])
        self.output = output.getvalue()
        return code, self.output.splitlines()[-1]

    def test_counts_cases(self):
        self.add("//a:t", "PASSED", GOOD)
        self.assertEqual(self.count(), (0, "2 passed, 0 failed, 0 skipped"))

    def test_failed_case(self):
        self.add("//a:t", "FAILED", FAILING)
        self.assertEqual(self.count(), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertIn("//a:t A.two: 1 is not 2 (a.cc:3)", self.output)

    def test_failure_is_shown_with_its_values_and_bounded(self):
        self.assertEqual(count_results.reason_of("a.cc:3\nExpected equality:\n  a\n    Which is: 1\n"),
                         "Expected equality:; a; Which is: 1 (a.cc:3)")
        long = count_results.reason_of("a.cc:3\n" + "x" * 1000)
        self.assertEqual(long, "x" * count_results.MOST_REASON_CHARS + "... (a.cc:3)")
        self.assertEqual(count_results.reason_of("\n"), "no reason given")

    def test_skip_is_shown_with_its_reason(self):
        self.add("//a:t", "PASSED", SKIPPING)
        self.assertEqual(self.count(), (0, "0 passed, 0 failed, 1 skipped"))
        self.assertIn("//a:t A.one: needs root (a.cc:9)", self.output)

    def test_privileged_skip_fails_where_skips_are_not_allowed(self):
        self.add("//a:t", "PASSED", SKIPPING)
        self.assertEqual(self.count("--no-skips", privileged=["//a:t"]),
                         (1, "0 passed, 1 failed, 0 skipped"))
        self.assertEqual(self.count("--no-skips", privileged=[]),
                         (0, "0 passed, 0 failed, 1 skipped"))
        self.assertEqual(self.count(privileged=["//a:t"]), (0, "0 passed, 0 failed, 1 skipped"))

    def test_disabled_case_is_a_skip(self):
        self.add("//a:t", "PASSED", DISABLED)
        self.assertEqual(self.count(), (0, "0 passed, 0 failed, 1 skipped"))

    def test_target_without_cases_fails(self):
        self.add("//a:t", "PASSED", EMPTY)
        self.assertEqual(self.count(), (1, "0 passed, 1 failed, 0 skipped"))
        self.assertEqual(self.count("--allow-empty"), (0, "0 passed, 0 failed, 0 skipped"))

    def test_crash_after_good_cases_fails(self):
        self.add("//a:t", "FAILED", GOOD)
        self.assertEqual(self.count(), (1, "2 passed, 1 failed, 0 skipped"))

    def test_timeout_fails(self):
        self.add("//a:t", "TIMEOUT", GOOD)
        self.assertEqual(self.count(), (1, "2 passed, 1 failed, 0 skipped"))
        self.assertIn("timed out", self.output)

    def test_crash_and_timeout_without_xml_count_once(self):
        self.add("//a:t", "FAILED", BY_BAZEL_BAD)
        self.assertEqual(self.count(gtest=["//a:t"]), (1, "0 passed, 1 failed, 0 skipped"))
        self.assertIn("exited with error code 132", self.output)
        self.events = []
        self.add("//a:t", "TIMEOUT", BY_BAZEL_BAD)
        self.assertEqual(self.count(), (1, "0 passed, 1 failed, 0 skipped"))

    def test_gtest_that_exits_early_fails_although_its_code_is_0(self):
        self.add("//a:t", "PASSED", BY_BAZEL)
        self.assertEqual(self.count(gtest=["//a:t"]), (1, "0 passed, 1 failed, 0 skipped"))
        self.assertEqual(self.count(gtest=[]), (0, "1 passed, 0 failed, 0 skipped"))

    def test_problem_of_the_caller_is_a_failure(self):
        self.add("//a:t", "PASSED", GOOD)
        self.assertEqual(self.count("--problem", "x does not load"),
                         (1, "2 passed, 1 failed, 0 skipped"))

    def test_missing_and_broken_xml_fail(self):
        self.add("//a:t", "PASSED", None)
        self.add("//a:u", "PASSED", "<testsuites><testcase")
        self.assertEqual(self.count(), (1, "0 passed, 2 failed, 0 skipped"))

    def test_control_characters_in_messages_are_tolerated(self):
        self.add("//a:t", "FAILED", FAILING.replace("1 is", "\x011 is"))
        self.assertEqual(self.count(), (1, "1 passed, 1 failed, 0 skipped"))

    def test_expected_target_that_did_not_run_fails(self):
        self.add("//a:t", "PASSED", GOOD)
        self.assertEqual(self.count(expect=["//a:t", "//a:u"]),
                         (1, "2 passed, 1 failed, 0 skipped"))
        self.assertIn("//a:u did not run", self.output)

    def test_test_target_that_does_not_build_counts_once(self):
        self.events.append({"id": {"targetCompleted": {"label": "//a:u"}}, "aborted": {}})
        self.assertEqual(self.count(expect=["//a:u"]), (1, "0 passed, 1 failed, 0 skipped"))
        self.assertIn("//a:u does not build", self.output)

    def test_other_target_that_does_not_build_fails(self):
        self.add("//a:t", "PASSED", GOOD)
        self.events.append({"id": {"targetCompleted": {"label": "//a:bin"}}, "aborted": {}})
        self.assertEqual(self.count(), (1, "2 passed, 1 failed, 0 skipped"))

    def test_bazel_that_dies_fails(self):
        self.add("//a:t", "PASSED", GOOD)
        self.finished = None
        self.assertEqual(self.count(), (1, "2 passed, 1 failed, 0 skipped"))

    def test_no_target_at_all_fails(self):
        self.assertEqual(self.count()[0], 1)


def main():
    """Runs the tests and, under Bazel, writes one XML case a test."""
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(CountResults)
    names = [test.id().split(".")[-1] for test in suite]
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    bad = {test.id().split(".")[-1]: text for test, text in result.failures + result.errors}
    if "XML_OUTPUT_FILE" in os.environ:
        root = count_results.ElementTree.Element("testsuites")
        for name in names:
            case = count_results.ElementTree.SubElement(
                root, "testcase", name=name, classname="CountResults", status="run")
            if name in bad:
                count_results.ElementTree.SubElement(case, "failure", message=bad[name])
        count_results.ElementTree.ElementTree(root).write(os.environ["XML_OUTPUT_FILE"])
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
