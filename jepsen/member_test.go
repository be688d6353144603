package jepsen

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

func TestMemoryOfAMember(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is /proc on Linux only")
	}
	m := &Member{ID: 1}
	if _, err := m.Memory(); err == nil {
		t.Error("a member that was never started has memory")
	}
	var err error
	if m.process, err = StartProcess("m1", exec.Command("sleep", "60"), filepath.Join(t.TempDir(), "log")); err != nil {
		t.Fatal(err)
	}
	defer m.Kill()
	if err := m.ResetPeakMemory(); err != nil {
		t.Error(err)
	}
	got, err := m.Memory()
	for err == nil && got.ResidentBytes < 100<<10 && t.Context().Err() == nil { // it has only begun
		got, err = m.Memory()
	}
	if err != nil || got.ResidentBytes < 100<<10 || got.PeakBytes < got.ResidentBytes || got.PeakBytes > 100<<20 {
		t.Errorf("memory %+v, %v", got, err)
	}
}

func TestParseMemory(t *testing.T) {
	text := "Name:\tsleep\nVmPeak:\t 9999 kB\nVmHWM:\t    2188 kB\nVmRSS:\t    2000 kB\nThreads:\t1\n"
	if got, want := parseMemory(text), (Memory{ResidentBytes: 2000 << 10, PeakBytes: 2188 << 10}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
