package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConfigCheck: the faults have the text of a start, and the order of the file.
func TestConfigCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "zoo.cfg")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("clientPort=2181\ndataDir=DIR/data\n")
	(&user{t: t}).expect("config check "+file, exitOK, file+": a member would start (faults: 0, warnings: 0)\n", "")

	write("clientPort=x\ndatadir=/tmp\ntickTimeMs=1\nrequireKerberosConfig=true\ntickTime=-1\n")
	status, text, _ := invoke("config", "check", file)
	_, _, started := invoke("serve", file)
	if want := strings.TrimSuffix(started, "lockkeeper: not started\n"); status != exitFailed || len(sameLines(text, want)) < 5 {
		t.Errorf("status %d\n%s\na start says\n%s", status, text, started)
	}
	for _, want := range []string{file + ":1: clientPort: must be a number", file + ":2: datadir: there is no such key; dataDir is probably meant",
		file + ":3: tickTimeMs: warning: ", file + ":4: requireKerberosConfig: ", file + ":5: tickTime: must be at least 1",
		": no member would start (faults: 4, warnings: 1)\n"} {
		before, after, found := strings.Cut(text, want)
		if !found {
			t.Errorf("%q is missing, or not in order, in\n%s", want, before)
		}
		text = after
	}
	_, text, _ = invoke("config", "check", "-json", file)
	var first finding
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&first); err != nil || first.Level != "fault" || first.Line != 1 ||
		first.Key != "clientPort" || first.File != file || strings.Count(text, "\n") != 5 {
		t.Errorf("%+v, %v, %s", first, err, text)
	}

	// Faults that a start finds in other files.
	write("clientPort=2181\ndataDir=DIR/data\nsecureClientPort=2182\ntls.cert=DIR/none.pem\ntls.ca=DIR/none.pem\npreAllocSize=1\n" +
		"server.1=10.0.0.1:2888:3888\nserver.2=10.0.0.2:2888:3888\n")
	status, text, _ = invoke("config", "check", file)
	for _, want := range []string{"myid: ", "does not need them: ignored: preAllocSize"} {
		if status != exitFailed || !strings.Contains(text, want) {
			t.Errorf("status %d, no %q in\n%s", status, want, text)
		}
	}
	status, text, _ = invoke("config", "check", "-elsewhere", file)
	if status != exitOK || strings.Contains(text, "myid") || !strings.Contains(text, "(faults: 0, ") {
		t.Errorf("-elsewhere: status %d, %s", status, text)
	}
	if err := os.MkdirAll(filepath.Join(dir, "data", "version-2"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"data/myid": "1\n", "data/version-2/log.1": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	status, text, _ = invoke("config", "check", file)
	for _, want := range []string{":2: dataDir: ", "has data of ZooKeeper", ":4: tls.cert: ", "none.pem: no such file", "would be refused", "(faults: 4, "} {
		if status != exitFailed || !strings.Contains(text, want) {
			t.Errorf("status %d, no %q in\n%s", status, want, text)
		}
	}
	(&user{t: t}).expect("config check "+file+"x", exitFailed, "", "no such file or directory")
	if left, err := os.ReadDir(filepath.Join(dir, "data")); err != nil || len(left) != 2 {
		t.Errorf("it has changed the data directory: %v %v", left, err)
	}
}

// sameLines are the lines that two texts have in common.
func sameLines(a, b string) (same []string) {
	for line := range strings.Lines(a) {
		if strings.Contains("\n"+b, fmt.Sprintf("\n%s", line)) {
			same = append(same, line)
		}
	}
	return same
}
