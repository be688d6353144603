package main

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/server"
	"lockkeeper/server/zoocfg"
)

// digestOf runs lockkeeper digest with that standard input.
func digestOf(t *testing.T, stdin string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"digest"}, args...)...)
	cmd.Env = new(user).environ()
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestDigest has the values of org.apache.zookeeper.server.auth.DigestAuthenticationProvider.
func TestDigest(t *testing.T) {
	for _, c := range []struct {
		stdin  string
		args   []string
		stdout string
	}{
		{"test", []string{"super"}, "super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n"},
		{"test\n", []string{"super"}, "super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n"},
		{"test\r\nmore\n", []string{"super"}, "super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n"},
		{"test", []string{"-algorithm", "sha-256", "super"}, "super:wjySwxg860UATFtciuZ1lpzrCHrPeov6SPu/ZD56uig=\n"},
		{"bobsecret", []string{"-sasl", "bob"}, "bob:zk-sasl-md5:fff08f480333e7694a6455b4a1d5b656\n"},
	} {
		if stdout, stderr, status := digestOf(t, c.stdin, c.args...); stdout != c.stdout || stderr != "" || status != exitOK {
			t.Errorf("%q %q: %q, %q, status %d", c.stdin, c.args, stdout, stderr, status)
		}
	}
	for _, c := range []struct {
		stdin  string
		args   []string
		stderr string
		status int
	}{
		{"\n", []string{"super"}, "the password is empty", exitFailed},
		{"\xff", []string{"super"}, "must be UTF-8", exitFailed},
		{"", []string{"a:b"}, "without a colon", exitUsage},
		{"", []string{"-algorithm", "CRC", "a"}, `"CRC" is none of MD5`, exitUsage},
		{"\n", []string{"-sasl", "bob"}, "the password is empty", exitFailed},
		{"", []string{"-sasl", "a:b"}, "without a colon", exitUsage},
		{"", nil, "it takes one USER", exitUsage},
		{"", []string{"a", "b"}, "it takes one USER", exitUsage},
	} {
		if stdout, stderr, status := digestOf(t, c.stdin, c.args...); stdout != "" || !strings.Contains(stderr, c.stderr) || status != c.status {
			t.Errorf("%q %q: %q, %q, status %d", c.stdin, c.args, stdout, stderr, status)
		}
	}
}

// TestDigestMakesSuperUser: the printed line works as superDigest.
func TestDigestMakesSuperUser(t *testing.T) {
	t.Parallel()
	id, _, _ := digestOf(t, "s:e c\u00e9t\n", "-algorithm", "SHA-256", "root")
	cfg := server.Config{
		Client: zoocfg.Client{Addr: "127.0.0.1:0"},
		Data:   zoocfg.Data{Dir: t.TempDir()},
		Logger: slog.New(slog.DiscardHandler),
		Auth:   zoocfg.Auth{DigestAlgorithm: "SHA-256", SuperDigest: strings.TrimSpace(id)},
	}
	s, err := server.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	c, _, err := zk.Connect([]string{s.ClientAddr().String()}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if _, err := c.Create("/closed", nil, 0, zk.DigestACL(zk.PermAll, "somebody", "else")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Set("/closed", nil, -1); err != zk.ErrNoAuth {
		t.Errorf("before the login: %v", err)
	}
	if err := c.AddAuth("digest", []byte("root:s:e c\u00e9t")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Set("/closed", nil, -1); err != nil {
		t.Errorf("the super user: %v", err)
	}
}
