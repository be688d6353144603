package run

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// tearLog tears the end of the newest segment's content.
func TestTearLog(t *testing.T) {
	dir := t.TempDir()
	old := bytes.Repeat([]byte{7}, 100)
	whole := append(bytes.Repeat([]byte{9}, 100), make([]byte, 50)...)
	for name, content := range map[string][]byte{"01.log": old, "02.log": whole} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := tearLog(dir); err != nil {
		t.Fatal(err)
	}
	torn, err := os.ReadFile(filepath.Join(dir, "02.log"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 100 - tornBytes; i < 100; i++ {
		if torn[i] == whole[i] {
			t.Errorf("byte %d is as it was", i)
		}
	}
	copy(torn[100-tornBytes:], whole[100-tornBytes:100])
	if !bytes.Equal(torn, whole) {
		t.Error("more was torn than the end")
	}
	if left, err := os.ReadFile(filepath.Join(dir, "01.log")); err != nil || !bytes.Equal(left, old) {
		t.Errorf("the older segment: %v, %v", left, err)
	}
}

// One byte of each file of the snapshots is damaged.
func TestDamageSnapshot(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "snapshots", "2-10-1", "state.bin")
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	whole := bytes.Repeat([]byte{7}, 101)
	if err := os.WriteFile(name, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if damaged, err := damageSnapshot(dir); err != nil || !damaged {
		t.Fatal(damaged, err)
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got[50] != ^whole[50] {
		t.Errorf("the byte in the middle is %d", got[50])
	}
	got[50] = whole[50]
	if !bytes.Equal(got, whole) {
		t.Error("more was damaged than a byte")
	}
	if damaged, err := damageSnapshot(t.TempDir()); err != nil || damaged {
		t.Errorf("without a snapshot: %v, %v", damaged, err)
	}
}

func TestGauge(t *testing.T) {
	mntr := "zk_quorum_size\t3\nzk_synced_followers\t2\n"
	for name, want := range map[string]string{"zk_quorum_size": "3", "zk_synced_followers": "2", "zk_synced": ""} {
		if got := gauge(mntr, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
