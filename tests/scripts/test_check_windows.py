"""The report about the tests for Windows counts every test."""

from __future__ import annotations

from check_windows import read_report

REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="5"><testsuite name="Files">
  <testcase name="AreRead" status="run" result="completed" classname="Files" />
  <testcase name="AreWritten" status="run" result="completed" classname="Files">
    <failure message="files_test.cpp:5&#x0A;Expected: true" type=""><![CDATA[...]]></failure>
  </testcase>
  <testcase name="AreForked" status="run" result="skipped" classname="Files">
    <skipped message="files_test.cpp:9&#x0A;Windows has no fork()&#x0A;"><![CDATA[...]]></skipped>
  </testcase>
  <testcase name="DISABLED_Others" status="notrun" result="suppressed" classname="Files" />
</testsuite></testsuites>
"""


def test_a_report_has_the_failed_and_skipped_tests() -> None:
    outcome = read_report(REPORT)
    assert outcome.n_passed == 1
    assert outcome.failed == ["Files.AreWritten"]
    assert outcome.skipped == {"Files.AreForked": "Windows has no fork()"}
