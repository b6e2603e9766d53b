"""How an output file is written: what is kept of an old one, links, targets that are no files, and writes that fail or are
interrupted."""
import os
import resource
import shutil
import signal
import stat
import subprocess
import threading
import unittest

from st import CLI, CliTest, decode, encode, is_sanitized, tensor

GOOD = {"cache": tensor("F32", [[0], [1], [2], [3]]), "indices": tensor("I32", [2, 0]),
        "block_table": tensor("I32", [1, 0])}
CC = os.environ.get("SWITCHYARD_CC") or shutil.which("cc")

# Stands before the C library: notes what is called, raises a signal in the first write, fails as a full disk does.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void note(const char *what)
{
    FILE *const log = fopen(getenv("SHIM_LOG"), "a");
    fprintf(log, "%s\n", what);
    fclose(log);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    ssize_t (*const real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    const char *const number = getenv("SHIM_SIGNAL");
    if (fd > 2 && number)
        raise(atoi(number));
    return real(fd, data, bytes);
}

int fsync(int fd)
{
    struct stat status;
    fstat(fd, &status);
    note(S_ISDIR(status.st_mode) ? "fsync folder" : "fsync file");
    errno = EIO;
    return getenv("SHIM_FSYNC") ? -1 : 0;
}

int rename(const char *from, const char *to)
{
    int (*const real)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
    note("rename");
    return real(from, to);
}
"""


class OutputTest(CliTest):
    def setUp(self):
        super().setUp()
        self.write("in.safetensors", encode(GOOD))

    def gather(self, out, **more):
        return subprocess.run([CLI, "run", "kv_gather", "in.safetensors", out, "--block-size", "2"], cwd=self.folder,
                              **dict({"capture_output": True, "timeout": 300, "check": False}, **more))

    def good(self, out, **more):
        done = self.gather(out, **more)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done

    def assert_out(self, name):
        self.assertEqual(decode(self.read(name))["out"].values(), [0, 2])

    def assert_files(self, *names):
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(("in.safetensors", *names)))


class Kept(OutputTest):
    def test_mode(self):
        for mode in (0o600, 0o664, 0o444, 0o777):
            self.write("out", b"old")
            os.chmod(self.path("out"), mode)
            self.good("out")
            self.assertEqual(stat.S_IMODE(os.stat(self.path("out")).st_mode), mode)
            self.assert_out("out")
            os.unlink(self.path("out"))

    @unittest.skipUnless(os.geteuid() == 0, "only root gives files away")
    def test_owner(self):
        os.chown(self.write("out", b"old"), 12345, 23456)
        self.good("out")
        status = os.stat(self.path("out"))
        self.assertEqual((status.st_uid, status.st_gid), (12345, 23456))

    def test_a_name_of_any_length(self):
        self.good("o" * 250)
        self.assert_out("o" * 250)


class Links(OutputTest):
    def test_to_a_file_that_is_missing(self):
        os.mkdir(self.path("folder"))
        os.symlink("folder/middle", self.path("link"))
        os.symlink("../real", self.path("folder/middle"))
        self.good("link")
        self.assertTrue(os.path.islink(self.path("link")) and os.path.islink(self.path("folder/middle")))
        self.assert_out("real")
        self.assert_files("folder", "link", "real")

    def test_to_a_file(self):
        self.write("real", b"old")
        os.chmod(self.path("real"), 0o640)
        os.symlink(self.path("real"), self.path("link"))
        self.good("link")
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertEqual(stat.S_IMODE(os.stat(self.path("real")).st_mode), 0o640)
        self.assert_out("real")

    def test_in_a_circle(self):
        os.symlink("b", self.path("a"))
        os.symlink("a", self.path("b"))
        done = self.gather("a")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"a: cannot be written: ", done.stderr)
        self.assert_files("a", "b")


class NoFiles(OutputTest):
    """What is no regular file is written to, and stays what it is."""

    def test_pipe(self):
        os.mkfifo(self.path("pipe"))
        got = []

        def read():
            got.append(self.read("pipe"))
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        self.good("pipe")
        reader.join(60)
        self.assertEqual(decode(got[0])["out"].values(), [0, 2])
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("pipe")).st_mode))
        self.assert_files("pipe")

    def test_standard_output(self):
        for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
            self.assertEqual(decode(self.good(name).stdout)["out"].values(), [0, 2])

    def test_standard_output_into_a_file(self):
        with open(self.path("out"), "wb") as file:
            file.write(b"before")
            file.flush()
            self.good("/dev/stdout", stdout=file, capture_output=False, stderr=subprocess.PIPE)
            file.write(b"after")
        blob = self.read("out")
        self.assertEqual((blob[:6], blob[-5:]), (b"before", b"after"))
        self.assertEqual(decode(blob[6:-5])["out"].values(), [0, 2])
        self.assert_files("out")

    def test_example_on_standard_output(self):
        done = subprocess.run([CLI, "example", "kv_gather", "/dev/stdout"], capture_output=True, check=False)
        self.assertEqual(done.returncode, 0)
        self.assertIn(b"Wrote /dev/stdout", done.stderr)
        self.assertIn("indices", decode(done.stdout))

    def test_full(self):
        with open("/dev/full", "wb") as full:
            done = self.gather("/dev/stdout", stdout=full, capture_output=False, stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stderr),
                         (2, b"switchyard: /dev/stdout: cannot be written: No space left on device\n"))


class OldFile(OutputTest):
    """After a failure the old file is there, and nothing beside it."""

    def setUp(self):
        super().setUp()
        self.write("out", b"old")

    def assert_old(self):
        self.assertEqual(self.read("out"), b"old")
        self.assert_files("out")


class Limits(OldFile):
    def test_limit_of_file_sizes(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
            resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
        done = self.gather("out", preexec_fn=limit)
        self.assertEqual((done.returncode, done.stderr), (2, b"switchyard: out: cannot be written: File too large\n"))
        self.assert_old()
        with open(self.path("text"), "wb") as text:
            done = subprocess.run([CLI, "help"], stdout=text, stderr=subprocess.PIPE, preexec_fn=limit, check=False)
        self.assertEqual((done.returncode, done.stderr), (2, b"switchyard: standard output cannot be written\n"))


@unittest.skipUnless(CC, "no C compiler")
class Interrupted(OldFile):
    def setUp(self):
        super().setUp()
        if is_sanitized():
            self.skipTest("a sanitizer wants to be the first library")
        self.write("shim.c", SHIM.encode())
        self.shim = os.path.join(self.folder, "..", os.path.basename(self.folder) + ".so")
        self.log = self.shim + ".log"
        self.addCleanup(lambda: [os.unlink(name) for name in (self.shim, self.log) if os.path.exists(name)])
        subprocess.run([CC, "-shared", "-fPIC", "-o", self.shim, self.path("shim.c"), "-ldl"], check=True)
        os.unlink(self.path("shim.c"))

    def shimmed(self, preexec_fn=None, **variables):
        return self.gather("out", env=dict(os.environ, LD_PRELOAD=self.shim, SHIM_LOG=self.log, **variables),
                           preexec_fn=preexec_fn)

    def test_signals(self):
        def usual(number):  # whatever this process was started with: nohup, or in the background of a script
            signal.signal(number, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            done = self.shimmed(SHIM_SIGNAL=str(int(number)), preexec_fn=lambda number=number: usual(number))
            self.assertEqual(done.returncode, -number, done.stderr)
            self.assert_old()

    def test_a_signal_that_is_ignored(self):
        done = self.shimmed(SHIM_SIGNAL=str(int(signal.SIGHUP)), preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_out("out")

    def test_the_disk_has_the_bytes_before_the_name(self):
        self.assertEqual(self.shimmed().returncode, 0)
        with open(self.log, encoding="utf-8") as log:
            self.assertEqual(log.read().splitlines(), ["fsync file", "rename", "fsync folder"])
        self.assert_out("out")

    def test_a_disk_that_fails(self):
        done = self.shimmed(SHIM_FSYNC="1")
        self.assertEqual((done.returncode, done.stderr), (2, b"switchyard: out: cannot be written: Input/output error\n"))
        self.assert_old()


if __name__ == "__main__":
    unittest.main()
