#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of attribution.py, and that docs/attribution.md is a table of it for the present suite.

usage: attribution_test.py GROUNDTRUTH_TEST LAYERS_TEST CGROUP_TEST DOCUMENT
"""

import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import attribution  # noqa: E402
import scenarios  # noqa: E402

*PROGRAMS, DOCUMENT = sys.argv[1:]


def suite():
    """Names of the cases that some kernel goes through."""
    wanted = scenarios.GROUPS[0].filter_for(scenarios.ALL_PATHS[0]).partition("-")[0]
    return cases_of(PROGRAMS[0], wanted)


def when_asked_for():
    """Names of those besides that may be in the table."""
    return [name for program in PROGRAMS[1:] for name in cases_of(program, "All/*")]


def cases_of(program, wanted):
    done = subprocess.run([program, "--writer=none", "--gtest_list_tests",
                           f"--gtest_filter={wanted}"],
                          stdout=subprocess.PIPE, text=True, check=True)
    return re.findall(r"^ +\w+/(\w+)", done.stdout, re.MULTILINE)


def record(kernel, **figures):
    case = {"name": "ext4_nojournal_write", "outcome": "passed", "figures": figures, "verdict": {}}
    return {"kernel": kernel, "release": f"{kernel}.1", "cases": [case],
            "missing_hooks": [["a_b", "worse blame"]] if kernel == "5.10" else []}


class AttributionTest(unittest.TestCase):
    def test_a_cell_has_all_bytes_by_confidence_and_the_share_that_is_right(self):
        text = attribution.document([
            record("6.1", all_bytes=1000, all_right_bytes=990, confidence_exact=900,
                   confidence_journal=100),
            record("5.10", all_bytes=1000, all_right_bytes=1000, confidence_lost=1000)])
        self.assertIn("| write | ext4_nojournal | lost 100.0; **100.0** "
                      "| exact 90.0, journal 10.0; **99.0** |", text)
        self.assertIn("| 5.10.1 | `a_b` | worse blame |", text)
        self.assertEqual(attribution.problems(text, ["ext4_nojournal_write"]), [])

    def test_runs_of_one_kernel_are_put_together(self):
        old = record("6.1", all_bytes=10, all_right_bytes=5, confidence_lost=10)
        old["cases"].append(dict(old["cases"][0], name="xfs_write"))
        new = record("6.1", all_bytes=10, all_right_bytes=10, confidence_exact=10)
        text = attribution.document([old, new])
        self.assertIn("| write | ext4_nojournal | exact 100.0; **100.0** |", text)
        self.assertIn("| write | xfs | lost 100.0; **50.0** |", text)

    def test_what_a_program_printed_will_do(self):
        printed = record("6.1")
        printed["cases"][0]["verdict"] = {"megabytes": 8.4, "all_percent": 99.9,
                                          "confidence": "exact 97.1% journal 2.8% issuer 0%"}
        self.assertIn("| exact 97.1, journal 2.8; **99.9** |", attribution.document([printed]))
        self.assertIn("| only flushes |", attribution.document([record("6.1")]))

    def test_lines_of_an_earlier_table_stay_where_nothing_new_is_known(self):
        old = record("6.1", all_bytes=10, all_right_bytes=5, confidence_lost=10)
        old["cases"].append(dict(old["cases"][0], name="xfs_write"))
        before = attribution.document([old])
        new = record("6.1", all_bytes=10, all_right_bytes=10, confidence_exact=10)
        other = record("7", all_bytes=10, all_right_bytes=10, confidence_issuer=10)
        text = attribution.document([new, other], attribution.cells_of(before))
        self.assertIn("| write | ext4_nojournal | exact 100.0; **100.0** "
                      "| issuer 100.0; **100.0** |", text)
        self.assertIn("| write | xfs | lost 100.0; **50.0** | not run |", text)

    def test_a_case_that_did_not_run_is_no_success(self):
        record_of = record("6.1")
        record_of["cases"][0]["outcome"] = "skipped"
        self.assertIn("| not run |", attribution.document([record_of]))

    def test_what_was_changed_by_hand_is_found(self):
        text = attribution.document([record("6.1", all_bytes=10, all_right_bytes=10,
                                            confidence_exact=10)])
        self.assertTrue(attribution.problems(text.replace("exact 100.0", "perfect"),
                                             ["ext4_nojournal_write"]))
        self.assertTrue(attribution.problems(text, ["ext4_nojournal_write", "xfs_write"]))
        self.assertTrue(attribution.problems(text, []))

    def test_the_document_is_of_this_suite(self):
        with open(DOCUMENT, encoding="utf-8") as file:
            self.assertEqual(attribution.problems(file.read(), suite(), when_asked_for()), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
