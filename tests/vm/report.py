# SPDX-License-Identifier: Apache-2.0
"""What came of a run in a virtual machine: test cases, as test.xml for those who count them and as
JSON for those who read them.

The cases of a ground-truth run come from the test program's own report. What that cannot tell (a
crash, a time limit, a machine that hangs) is a failed case of its own.
"""

import dataclasses
import json
import re
import xml.etree.ElementTree as ElementTree

SECOND_BOOT = "second-boot"  # a case of this name says that a machine needed one
RAN_NO_CASE = "ran no case"
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
# ext4/write_syncfs   data 100.00%  all 100.00%  wrong 0  lost 0  of 25.2 MB (exact 99.8% ...)
VERDICT = re.compile(r"^(\w[\w/-]*)\s+data\s+([\d.]+)%\s+all\s+([\d.]+)%\s+wrong (\d+)\s+lost (\d+)\s+"
                     r"of ([\d.]+) MB \((.*)\)$")


@dataclasses.dataclass
class Case:
    name: str
    outcome: str
    seconds: float = 0.0
    reason: str = ""
    verdict: dict = dataclasses.field(default_factory=dict)
    # Bytes, as the test program recorded them: data_bytes, data_right_bytes, all_bytes,
    # all_right_bytes, wrong_bytes, lost_bytes, and confidence_exact ... of those it saw.
    figures: dict = dataclasses.field(default_factory=dict)


def verdicts_of(log):
    """{case name: what share went to the writer ...} of the lines that the test program prints."""
    found = {}
    for line in log.splitlines():
        if match := VERDICT.match(line):
            found[match[1].replace("/", "_")] = {
                "data_percent": float(match[2]), "all_percent": float(match[3]),
                "wrong_bytes": int(match[4]), "lost_bytes": int(match[5]),
                "megabytes": float(match[6]), "confidence": match[7]}
    return found


def groundtruth_cases(result, limit):
    """Cases of a ground-truth step: of its XML, or of its log if it did not come to write one."""
    log = result.files.get(f"{result.name}.log", b"").decode(errors="replace")
    verdicts = verdicts_of(log)
    cases = []
    xml = result.files.get(f"{result.name}.xml")
    if xml:
        text = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", "?", xml.decode(errors="replace"))
        for element in ElementTree.fromstring(text).iter("testcase"):
            if element.get("status") != "run":
                continue
            name = element.get("name").rpartition("/")[2]
            failure, skip = element.find("failure"), element.find("skipped")
            outcome = FAILED if failure is not None else SKIPPED if skip is not None else PASSED
            told = failure if failure is not None else skip
            reason = "" if told is None else (told.get("message") or told.text or "")
            figures = {p.get("name"): int(p.get("value")) for p in element.iter("property")
                       if p.get("value", "").isdigit()}
            cases.append(Case(name, outcome, float(element.get("time", 0)), reason.strip(),
                              figures=figures))
    else:
        for done in re.finditer(r"^\[ +(OK|FAILED) +\] \S+/(\w+) \((\d+) ms\)$", log, re.MULTILINE):
            good = done[1] == "OK"
            cases.append(Case(done[2], PASSED if good else FAILED, int(done[3]) / 1000,
                              "" if good else "see the log"))
    for case in cases:
        case.verdict = verdicts.get(case.name, {})
    if result.exit_code != 0 and not any(case.outcome == FAILED for case in cases):
        running = re.findall(r"^\[ RUN +\] \S+/(\w+)$", log, re.MULTILINE)
        last = running[-1] if running else result.name
        how = (f"not done after {limit} s" if result.exit_code in (124, 137, 143)
               else f"the test program ended with {result.exit_code}")
        cases.append(Case(last, FAILED, result.seconds, how))
    elif not cases:
        cases.append(Case(result.name, FAILED, result.seconds, RAN_NO_CASE))
    return cases


def asked_for(cases, patterns, left_out):
    """The cases of all groups, when only those named by `patterns` were to run; [] = all.

    A name that stands for nothing is a mistake; one that this kernel cannot give is told with the
    reason. It is no matter that a group has no case of the name when another one has.
    """
    if not patterns:
        return cases
    found = [case for case in cases if case.reason != RAN_NO_CASE]
    found += [Case(name, SKIPPED, reason=f"does not hold on this kernel: {why}")
              for name, why in sorted(left_out.items())]
    return found or [Case(" ".join(patterns), FAILED,
                          reason="there is no scenario of this name; tests/groundtruth/scenario.cc and "
                          "paths.cc list them, each with its filesystem in front: ext4_direct")]


def check_case(result):
    """The step that runs the agent's --check."""
    log = result.files.get(f"{result.name}.log", b"").decode(errors="replace")
    if result.exit_code == 0 and "BPF programs: the kernel accepts them" in log:
        return Case(result.name, PASSED, result.seconds)
    bad = re.findall(r"^ +NO +(.*)\n(?:.*\n)?(?: +to do: (.*))?", log, re.MULTILINE)
    reason = "; ".join(": ".join(filter(None, pair)) for pair in bad)
    return Case(result.name, FAILED, result.seconds,
                reason or f"--check ended with {result.exit_code}")


def missing_hooks(result):
    """[[hook, what it costs to be without it]] of what --check says this kernel lacks."""
    log = result.files.get(f"{result.name}.log", b"").decode(errors="replace")
    return [list(pair) for pair in
            re.findall(r"^ +!! +hook (\w+): .*\n +without it: (.*)$", log, re.MULTILINE)]


def write_xml(path, series, release, cases):
    suite = ElementTree.Element("testsuite", name=f"kernel {series}", tests=str(len(cases)))
    for case in cases:
        element = ElementTree.SubElement(suite, "testcase", classname=release or f"kernel {series}",
                                         name=case.name, time=f"{case.seconds:.1f}")
        reason = re.sub(r"[\x00-\x08\x0b-\x1f]", "?", case.reason)
        if case.outcome == FAILED:
            ElementTree.SubElement(element, "failure", message=reason)
        elif case.outcome == SKIPPED:
            ElementTree.SubElement(element, "skipped", message=reason)
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def write_json(path, series, release, packages, cases, missing=(), console=""):
    record = {"kernel": series, "release": release, "packages": packages,
              "missing_hooks": list(missing),
              "cases": [dataclasses.asdict(case) for case in cases], "console": console}
    with open(path, "w", encoding="utf-8") as out:
        json.dump(record, out, indent=1)
        out.write("\n")


def table(records):
    """Kernels side by side: one line for each case."""
    names = []
    for record in records:
        names += [case["name"] for case in record["cases"] if case["name"] not in names]
    width = max([len(name) for name in names] + [8])
    lines = ["case".ljust(width) + "".join(f"  {record['kernel']:>14}" for record in records)]
    for name in names:
        cells = []
        for record in records:
            case = next((c for c in record["cases"] if c["name"] == name), None)
            cells.append(cell(case))
        lines.append(name.ljust(width) + "".join(f"  {text:>14}" for text in cells))
    return "\n".join(lines)


def cell(case):
    if case is None:
        return "-"
    if case["outcome"] != PASSED:
        return case["outcome"].upper() if case["outcome"] == FAILED else case["outcome"]
    verdict = case["verdict"]
    return f"{verdict['data_percent']:.1f}/{verdict['all_percent']:.1f} %" if verdict else "ok"


def main(paths):
    records = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            records.append(json.load(file))
    records.sort(key=lambda record: [int(part) for part in record["kernel"].split(".")])
    print(table(records))
    print("Percent of the file data, and of all bytes, charged to those who wrote them.")
    for record in records:
        for case in record["cases"]:
            if case["name"] == SECOND_BOOT:
                print(f"\nKernel {record['kernel']}: {case['reason']}.")
    for record in records:
        if record.get("console"):
            print(f"\nThe machine of kernel {record['kernel']} hung or ended early. "
                  f"The end of its console:\n{record['console']}")


if __name__ == "__main__":
    import sys
    main(sys.argv[1:])
