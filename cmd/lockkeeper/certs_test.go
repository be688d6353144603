package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lockkeeper/internal/freeport"
	"lockkeeper/server"
)

// TestCertsAreUsedAsTheyAre: a member starts with the lines that 'certs init' prints, and commands
// connect with the flags that 'certs client' prints.
func TestCertsAreUsedAsTheyAre(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certs, file := filepath.Join(dir, "certs"), filepath.Join(dir, "zoo.cfg")
	status, lines, stderr := invoke("certs", "init", certs)
	if status != exitOK {
		t.Fatal(stderr)
	}
	port, err := freeport.Take(1)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("dataDir=%s\nadmin.enableServer=false\n%s", filepath.Join(dir, "data"), lines)
	text = strings.Replace(text, "secureClientPort=2182", fmt.Sprintf("secureClientPort=%d", port[0]), 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := server.LoadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	status, lines, stderr = invoke("certs", "client", certs, "app")
	flags := regexp.MustCompile(`(?m)^-tls-ca .*$`).FindString(lines)
	if status != exitOK || flags == "" {
		t.Fatal(lines, stderr)
	}
	create := append([]string{"create", "-servers", fmt.Sprintf("localhost:%d", port[0]), "-acl", "x509:CN=app:cdrwa"}, strings.Fields(flags)...)
	if status, _, stderr := invoke(append(create, "/a", "text")...); status != exitOK {
		t.Fatal(stderr)
	}
	if status, stdout, _ := invoke("certs", "list", "-expiring", "366", certs); status != exitFailed || !strings.Contains(stdout, "app ") {
		t.Errorf("status %d of a certificate that expires soon: %s", status, stdout)
	}
	if status, _, _ := invoke("certs", "list", "-expiring", "300", certs); status != exitOK {
		t.Errorf("status %d though nothing expires soon", status)
	}
}

// TestCertsOfAnEnsemble: each server line has a certificate for its hosts, and 'certs member' adds
// certificates for new lines. The printed lines make a zoo.cfg without faults for each member.
func TestCertsOfAnEnsemble(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certs, file := filepath.Join(dir, "certs"), filepath.Join(dir, "zoo.cfg")
	base := "dataDir=" + dir + "/data%d\nserver.1=m1.example.com:2888:3888;2181\nserver.2=10.0.0.2:2888:3888;m2.example.com:2181\n"
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, fmt.Sprintf(base, 0))
	status, lines, stderr := invoke("certs", "init", "-host", "zk.example.com", certs, file)
	if status != exitOK {
		t.Fatal(stderr)
	}
	for n, part := range strings.Split(lines, "# In the zoo.cfg of ")[1:] {
		_, part, _ = strings.Cut(part, "\n")
		data, file := filepath.Join(dir, fmt.Sprintf("data%d", n+1)), filepath.Join(dir, fmt.Sprintf("%d.cfg", n+1))
		if err := os.Mkdir(data, 0o700); err != nil {
			t.Fatal(err)
		}
		write(filepath.Join(data, "myid"), fmt.Sprintln(n+1))
		write(file, fmt.Sprintf(base, n+1)+part)
		if status, stdout, _ := invoke("config", "check", file); status != exitOK || strings.Contains(stdout, "PEER PORT") {
			t.Errorf("status %d for member %d: %s", status, n+1, stdout)
		}
	}
	status, stdout, _ := invoke("certs", "list", certs)
	for _, want := range []string{"m1.example.com, zk.example.com", "m2.example.com, zk.example.com, 10.0.0.2"} {
		if status != exitOK || !strings.Contains(stdout, want) {
			t.Errorf("status %d, %q is missing: %s", status, want, stdout)
		}
	}
	if status, _, stderr := invoke("certs", "member", certs, file); status != exitFailed || !strings.Contains(stderr, "all members of") {
		t.Errorf("status %d: %s", status, stderr)
	}
	write(file, fmt.Sprintf(base, 0)+"server.3=m3.example.com:2888:3888;2181\n")
	if status, stdout, stderr := invoke("certs", "member", "-at", "/etc/tls", certs, file); status != exitOK ||
		strings.Contains(stdout, "member-1") || !strings.Contains(stdout, "tls.cert=/etc/tls/tls.pem\n") {
		t.Errorf("status %d: %s%s", status, stdout, stderr)
	}
	if status, stdout, stderr := invoke("certs", "member", "-host", "m4", "-zookeeper", certs, "member-4"); status != exitOK ||
		!strings.Contains(stdout, "ssl.keyStore.location="+certs+"/member-4/tls.pem\n") {
		t.Errorf("status %d: %s%s", status, stdout, stderr)
	}
}

// TestCertsUsage: a wrong command line is refused before anything is made.
func TestCertsUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, args := range []string{"", "init", "make DIR", "member DIR", "client DIR", "list DIR more", "rotate -host h DIR", "init -days 0 DIR", "init -days 999999 DIR"} {
		line := append([]string{"certs"}, strings.Fields(strings.ReplaceAll(args, "DIR", filepath.Join(dir, "certs")))...)
		if status, _, stderr := invoke(line...); status != exitUsage {
			t.Errorf("%s: status %d: %s", args, status, stderr)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
