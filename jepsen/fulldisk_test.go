package jepsen

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// diskBytes is the size of a disk that is to be filled.
const diskBytes = 48 << 20

// smallDisk mounts a small file system at dir, in memory. Errors of the kernel's mean that this
// machine cannot.
func smallDisk(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("mounts a small disk: needs root")
	}
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", diskBytes), "tmpfs",
		dir).CombinedOutput()
	if err != nil {
		t.Skipf("mounts a small disk: %v: %s", err, out)
	}
	t.Cleanup(func() {
		// The members have gone: this was registered before they were started.
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %v: %s", dir, err, out)
		}
	})
}

// fill takes all free room, and returns a function that gives it back.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size > 0; {
		if _, err = f.Write(make([]byte, size)); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			size /= 2
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// logged waits until a member has logged a text so often.
func (l *lab) logged(m *Member, text string, times int) {
	l.t.Helper()
	err := Poll(l.ctx, 20*time.Millisecond, func() error {
		b, err := os.ReadFile(m.LogPath())
		if n := bytes.Count(b, []byte(text)); err == nil && n < times {
			return fmt.Errorf("%s has logged %q %d times, want %d", m, text, n, times)
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

const (
	stopsWhenFull = "disk full: this member closes its client connections"
	waitsForRoom  = "serves no clients until there is room"
)

// fullDiskLab is a cluster of which each member has a small disk of its own.
func fullDiskLab(t *testing.T, members int) *lab {
	t.Helper()
	dir := KeptDir(t, *keepFlag)
	for i := range members {
		smallDisk(t, filepath.Join(dir, fmt.Sprintf("m%d", i+1), "data"))
	}
	return newLabIn(t, dir, 3*time.Minute, ClusterConfig{Target: findTarget(t, "lockkeeper"), Members: members,
		TickTime: time.Second})
}

// A member alone with a full disk lets its clients go, loses nothing that it has acknowledged, and
// serves again when there is room, in the same process.
func TestFullDiskAlone(t *testing.T) {
	l := fullDiskLab(t, 1)
	m := l.cluster.Members()[0]
	s := l.startScribe("/scribe")
	process, _ := m.current()
	for round := 1; round <= 2; round++ {
		l.writes(s, 50)
		free := fill(t, filepath.Join(m.dir, "data"))
		l.logged(m, stopsWhenFull, round)
		l.logged(m, waitsForRoom, round)
		if _, err := m.Mode(l.ctx); err == nil {
			t.Error("the member serves clients though its disk is full")
		}
		free()
		if err := m.AwaitServing(l.ctx); err != nil {
			t.Fatal(err)
		}
	}
	l.writes(s, 50)
	if now, running := m.current(); now != process || !running {
		t.Error("the process is not the one that was started")
	}
	answer, err := FourLetter(l.ctx, m.ClientAddr, "mntr")
	if err != nil || !strings.Contains(answer, "zk_disk_full_stops\t2\n") {
		t.Errorf("mntr: %v\n%s", err, answer)
	}
	s.end(l)
}

// Of three members, one with a full disk is as one that is dead: the others go on. When there is
// room, it is one of them again. Without room on two, nothing is acknowledged.
func TestFullDiskInACluster(t *testing.T) {
	l := fullDiskLab(t, 3)
	s := l.startScribe("/scribe")
	for range 2 { // leaders
		leader, err := l.cluster.AwaitLeader(l.ctx)
		if err != nil {
			t.Fatal(err)
		}
		l.fillOne(s, leader)
	}
	leader, err := l.cluster.AwaitLeader(l.ctx)
	if err != nil {
		t.Fatal(err)
	}
	var followers []*Member
	for _, m := range l.cluster.Members() {
		if m != leader {
			followers = append(followers, m)
		}
	}
	l.fillOne(s, followers[0])
	before := map[*Member]int{}
	for _, m := range followers {
		b, err := os.ReadFile(m.LogPath())
		if err != nil {
			t.Fatal(err)
		}
		before[m] = bytes.Count(b, []byte(waitsForRoom))
	}
	free := fill(t, filepath.Join(followers[0].dir, "data"))
	free2 := fill(t, filepath.Join(followers[1].dir, "data"))
	for _, m := range followers {
		l.logged(m, waitsForRoom, before[m]+1)
	}
	err = Poll(l.ctx, 20*time.Millisecond, func() error {
		if mode, err := leader.Mode(l.ctx); err == nil {
			return fmt.Errorf("%s says that it is a %s, with nobody else who can write", leader, mode)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	stopped := s.count()
	free()
	l.writes(s, 50)
	free2()
	if err := l.cluster.AwaitServing(l.ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("figures: %d nodes acknowledged when two of three disks were full", stopped)
	s.end(l)
}

// fillOne fills the disk of one member, sees the others go on, and frees it again.
func (l *lab) fillOne(s *scribe, m *Member) {
	l.t.Helper()
	b, err := os.ReadFile(m.LogPath())
	if err != nil {
		l.t.Fatal(err)
	}
	before := bytes.Count(b, []byte(waitsForRoom))
	free := fill(l.t, filepath.Join(m.dir, "data"))
	l.logged(m, waitsForRoom, before+1)
	l.writes(s, 50)
	free()
	if err := m.AwaitServing(l.ctx); err != nil {
		l.t.Fatal(err)
	}
	l.writes(s, 20)
}
