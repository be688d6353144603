package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockkeeper/server/offline"
)

// A member that stood alone becomes the first one of a cluster with all its data, and a directory
// that was set aside is the beginning of another one.
func TestRecoverCommand(t *testing.T) {
	dir := copyRecorded(t)
	says(t, exitOK, nil, "import", dir)
	file := filepath.Join(t.TempDir(), "zoo.cfg")
	lines := "tickTime=2000\ninitLimit=5\nsyncLimit=2\nclientPort=2181\ndataDir=" + dir +
		"\nserver.1=127.0.0.1:2888:3888\nserver.2=127.0.0.1:2889:3889\nserver.3=127.0.0.1:2890:3890\n"
	for name, text := range map[string]string{file: lines, filepath.Join(dir, "myid"): "1\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shown := says(t, exitOK, nil, "recover", "-show", "-json", file)
	var v offline.Survivor
	if err := json.Unmarshal([]byte(shown), &v); err != nil || v.Zxid != "0x72" || v.Sessions != 5 {
		t.Errorf("%s: %+v, %v", shown, v, err)
	}
	says(t, exitUsage, []string{"-yes is needed"}, "recover", file)
	says(t, exitUsage, []string{"neither -show nor -from"}, "recover", "-rejoin", "-show", file)
	done := says(t, exitOK, []string{"zxid         0x72", "-rejoin", filepath.Join(dir, "aside-")}, "recover", "-yes", file)
	_, rest, _ := strings.Cut(done, "Cluster ")
	cluster, _, _ := strings.Cut(rest, " ")
	says(t, exitOK, []string{"cluster      " + cluster, "voters       1\n", "nothing: this disk alone was the majority"}, "recover", "-show", file)
	says(t, exitOK, []string{"The files of this member are now", "raft.db"}, "recover", "-rejoin", "-yes", file)
	says(t, exitFailed, []string{"there are no data of lockkeeper"}, "recover", "-show", file)
	aside, err := filepath.Glob(filepath.Join(dir, "aside-*", "raft.db"))
	if err != nil || len(aside) == 0 {
		t.Fatal(aside, err)
	}
	says(t, exitOK, []string{"zxid         0x72"}, "recover", "-yes", "-from", filepath.Dir(aside[0]), file)
}
