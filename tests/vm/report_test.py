#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of report.py: nothing that went wrong in a machine may count as passed."""

import os
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import report  # noqa: E402

LINE = ("ext4/write_syncfs                  data 100.00%  all  99.89%  wrong 0  lost 512  "
        "of 25.2 MB (exact 99.8% journal 0.1%)")
LOG = f"""[ RUN      ] All/G.W/ext4_write_syncfs
{LINE}
[       OK ] All/G.W/ext4_write_syncfs (3000 ms)
[ RUN      ] All/G.W/xfs_direct
"""
XML = """<testsuites><testsuite><testcase name="W/ext4_write_syncfs" status="run" time="3">
<properties><property name="confidence_exact" value="900"/><property name="all_bytes" value="1000"/>
</properties></testcase>
<testcase name="W/xfs_direct" status="run" time="1"><failure message="wrong \x01"/></testcase>
<testcase name="W/xfs_read" status="run"><skipped message="no mkfs"/></testcase>
<testcase name="W/other" status="notrun"/></testsuite></testsuites>"""


class Result:
    def __init__(self, name, exit_code, **files):
        self.name, self.exit_code, self.seconds = name, exit_code, 1.0
        self.files = {f"{name}.{kind}": text.encode() for kind, text in files.items()}


def outcomes(cases):
    return {case.name: case.outcome for case in cases}


class ReportTest(unittest.TestCase):
    def test_takes_cases_from_the_programs_report(self):
        cases = report.groundtruth_cases(Result("groundtruth", 1, log=LOG, xml=XML), 60)
        self.assertEqual(outcomes(cases), {"ext4_write_syncfs": "passed", "xfs_direct": "failed",
                                           "xfs_read": "skipped"})
        self.assertEqual(cases[0].verdict["all_percent"], 99.89)
        self.assertEqual(cases[0].verdict["lost_bytes"], 512)
        self.assertEqual(cases[0].figures, {"confidence_exact": 900, "all_bytes": 1000})

    def test_a_time_limit_fails_the_case_that_ran(self):
        cases = report.groundtruth_cases(Result("groundtruth", 143, log=LOG), 60)
        self.assertEqual(outcomes(cases), {"ext4_write_syncfs": "passed", "xfs_direct": "failed"})
        self.assertIn("60 s", cases[1].reason)

    def test_a_crash_is_a_failure(self):
        cases = report.groundtruth_cases(Result("groundtruth", 139, log=""), 60)
        self.assertEqual(outcomes(cases), {"groundtruth": "failed"})

    def test_names_are_asked_for_in_all_groups_together(self):
        one = report.Case("ext4_direct", "passed")
        none = report.Case("layers", "failed", reason=report.RAN_NO_CASE)
        self.assertEqual(outcomes(report.asked_for([one, none], ["ext4_direct"], {})),
                         {"ext4_direct": "passed"})
        self.assertEqual(outcomes(report.asked_for([none], ["ext4_dircet"], {})),
                         {"ext4_dircet": "failed"})
        self.assertEqual(outcomes(report.asked_for([none], ["xfs_a"], {"xfs_a": "no hook"})),
                         {"xfs_a": "skipped"})
        self.assertEqual(outcomes(report.asked_for([none], [], {})), {"layers": "failed"})

    def test_no_case_at_all_is_a_failure(self):
        empty = "<testsuites><testsuite/></testsuites>"
        cases = report.groundtruth_cases(Result("groundtruth", 0, log="", xml=empty), 60)
        self.assertEqual(outcomes(cases), {"groundtruth": "failed"})

    def test_check_must_say_that_the_programs_load(self):
        good = "  ok  BPF programs: the kernel accepts them\n"
        bad = ("  NO  BPF programs: the kernel accepts them\n        without it: nothing\n"
               "        to do: the kernel's verifier refused program x: R1\n")
        self.assertEqual(report.check_case(Result("check", 0, log=good)).outcome, "passed")
        self.assertEqual(report.check_case(Result("check", 0, log="")).outcome, "failed")
        case = report.check_case(Result("check", 1, log=bad))
        self.assertEqual(case.outcome, "failed")
        self.assertIn("refused program x: R1", case.reason)

    def test_hooks_that_a_kernel_lacks_are_told(self):
        log = ("  ok  hook a_b: this\n  !!  hook c_d: that\n        without it: worse blame\n"
               "        to do: something\n")
        self.assertEqual(report.missing_hooks(Result("check", 0, log=log)),
                         [["c_d", "worse blame"]])

    def test_xml_is_readable_and_complete(self):
        cases = report.groundtruth_cases(Result("groundtruth", 1, log=LOG, xml=XML), 60)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "test.xml")
            report.write_xml(path, "6.1", "6.1.0-50-amd64", cases)
            found = list(ElementTree.parse(path).iter("testcase"))
        self.assertEqual(len(found), 3)
        self.assertIsNotNone(found[1].find("failure"))
        self.assertIsNotNone(found[2].find("skipped"))

    def test_table_shows_every_case_of_every_kernel(self):
        case = {"name": "check", "outcome": "passed", "verdict": {}}
        verdict = {"data_percent": 100.0, "all_percent": 99.9}
        text = report.table([
            {"kernel": "6.1", "cases": [case, dict(case, name="a", verdict=verdict)]},
            {"kernel": "7", "cases": [dict(case, outcome="failed")]}])
        self.assertIn("100.0/99.9 %", text)
        self.assertIn("FAILED", text)
        self.assertIn("-", text.splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
