"""A plugin for pytest with which kazoo's own tests run against another server.

kazoo's tests start their servers through kazoo.testing.common, which writes a
zoo.cfg and then runs "java ... QuorumPeerMain zoo.cfg". This plugin stands in
for that last step: it runs another program with the same zoo.cfg, and keeps
what the server prints. Everything else is kazoo's own, and the installed
package is not changed.

Environment:

  STANDIN_COMMAND            a JSON list: the command that runs a server; the
                             name of the configuration file is appended
  STANDIN_LOGS               a directory for the servers' output
  STANDIN_RESULTS            a file that gets one JSON object a line: first the
                             names of all tests (collected); for each test that
                             is over its id, outcome, seconds and text; and what
                             is wrong with a server (fault)
  STANDIN_EXCLUDED           a JSON list: tests that are not expected to pass
  STANDIN_ONLY               a JSON list: the tests to run; empty: all
  STANDIN_PATIENCE           how many seconds a test may take
  STANDIN_EXCLUDED_PATIENCE  how many seconds one of those may take
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import types

import pytest

from kazoo.testing import common, harness

COMMAND = json.loads(os.environ["STANDIN_COMMAND"])
LOGS = os.environ["STANDIN_LOGS"]
RESULTS = os.environ["STANDIN_RESULTS"]
EXCLUDED = set(json.loads(os.environ["STANDIN_EXCLUDED"]))
ONLY = set(json.loads(os.environ["STANDIN_ONLY"]))
PATIENCE = int(os.environ["STANDIN_PATIENCE"])
EXCLUDED_PATIENCE = int(os.environ["STANDIN_EXCLUDED_PATIENCE"])

# The Java system properties of kazoo's that matter to the tests, with their names in lockkeeper's
# zoo.cfg.
PROPERTIES = {
    "-Djava.security.auth.login.config": "java.security.auth.login.config",
    "-Dreadonlymode.enabled": "readonlymode.enabled",
    "-Dzookeeper.DigestAuthenticationProvider.superDigest": "DigestAuthenticationProvider.superDigest",
}

# How long a server may take to end after SIGTERM.
STOP_SECONDS = 20

PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None)


def die_with_parent():
    """Has the kernel end a server when the test runner is gone."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def record(what):
    with open(RESULTS, "a") as f:
        f.write(json.dumps(what) + "\n")


class Server(subprocess.Popen):
    """A server whose end is looked at."""

    def terminate(self):
        if self.poll() is not None:
            record({"fault": "a server ended by itself, with status %d" % self.returncode})
        super().terminate()

    def wait(self, timeout=None):
        if timeout is not None:
            return super().wait(timeout)
        try:
            super().wait(STOP_SECONDS)
            if self.returncode not in (0, 128 + signal.SIGTERM):  # Java has the second one
                record({"fault": "a server ended with status %d after SIGTERM" % self.returncode})
        except subprocess.TimeoutExpired:
            record({"fault": "a server did not end within %d s after SIGTERM; its log has its stacks" % STOP_SECONDS})
            self.send_signal(signal.SIGQUIT)  # Go and Java: print all stacks
            try:
                super().wait(2)  # Go ends then, Java goes on
            except subprocess.TimeoutExpired:
                self.kill()
                super().wait()
        return self.returncode


def start(args):
    """Is called as subprocess.Popen is by ManagedZooKeeper.run."""
    config = args[-1]
    directory = os.path.dirname(config)
    properties = [arg for arg in args if arg.partition("=")[0] in PROPERTIES]
    if os.path.basename(COMMAND[0]) == "java":
        args = COMMAND[:1] + properties + COMMAND[1:] + [config]
    else:
        with open(config, "a") as f:
            for arg in properties:
                key, _, value = arg.partition("=")
                f.write("%s=%s\n" % (PROPERTIES[key], value))
        args = COMMAND + [config]
    with open(os.path.join(directory, "data", "myid")) as f:
        name = "server%s-%s.log" % (f.read().strip(), os.path.basename(directory))
    with open(os.path.join(LOGS, name), "a") as log:
        log.write("-- %s %s\n" % (time.strftime("%H:%M:%S"), " ".join(args)))
        log.flush()
        return Server(
            args, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent)


# The module uses nothing else of subprocess.
common.subprocess = types.SimpleNamespace(Popen=start)


STATUS = pytest.StashKey()  # with which the runner ends


class OutOfPatience(BaseException):
    """Is not an Exception, so that no retry loop of kazoo swallows it."""


def name(nodeid):
    """Is what a test is called in excluded.txt: file::class::method."""
    return nodeid.rpartition("/")[2]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    """Bounds a test. (What kazoo does in setUp and tearDown is part of it.)"""
    seconds = EXCLUDED_PATIENCE if name(item.nodeid) in EXCLUDED else PATIENCE

    def give_up(signum, frame):
        raise OutOfPatience("not over after %d s" % seconds)

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pytest_collection_modifyitems(config, items):
    """Selects the tests. (Names on the command line would do, but pytest 7.2
    finds only some of several in one package.)"""
    if ONLY:
        items[:] = [item for item in items if name(item.nodeid) in ONLY]


def pytest_collection_finish(session):
    record({"collected": [name(item.nodeid) for item in session.items]})


def pytest_collectreport(report):
    if report.failed:
        record({"fault": report.longreprtext})


# The phases of a test that is not over: setup, call, teardown.
phases = []


def pytest_runtest_logreport(report):
    phases.append(report)
    if report.when != "teardown":
        return
    outcomes = [p.outcome for p in phases]
    text = ""
    for p in phases:
        if p.outcome == "failed":
            text += p.longreprtext + "\n"
        elif p.outcome == "skipped":
            text += "%s\n" % (p.longrepr,)
    record({
        "id": name(report.nodeid),
        "outcome": "failed" if "failed" in outcomes else "skipped" if "skipped" in outcomes else "passed",
        "seconds": sum(p.duration for p in phases),
        "text": text,
    })
    phases.clear()


def pytest_sessionfinish(session, exitstatus):
    session.config.stash[STATUS] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """Ends the servers and the process. Left to itself the interpreter would
    wait for the threads of clients that some tests forget, and they try to
    connect for ever."""
    if harness.CLUSTER is not None:
        harness.CLUSTER.terminate()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(config.stash.get(STATUS, 3))
