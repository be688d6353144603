package simdisk_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/simdisk"
	"lockkeeper/quorum/wal"
)

// must is for what cannot fail on a disk without faults.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// durableFile creates a file of so many sectors, all zeros, that a power cut leaves.
func durableFile(d *simdisk.Disk, sectors int64) wal.File {
	f := must(d.Files().Create("dir/a", 512*sectors))
	must(0, f.Sync())
	must(0, d.Files().SyncDir("dir"))
	return f
}

// write writes a letter to whole sectors.
func write(f wal.File, letter string, sector, sectors int64) {
	must(f.WriteAt([]byte(strings.Repeat(letter, int(512*sectors))), 512*sector))
}

// read is the first letter of each sector of dir/a, "0" for a zero.
func read(t *testing.T, d *simdisk.Disk) string {
	t.Helper()
	f, err := d.Files().Open("dir/a")
	if err != nil {
		t.Fatal(err)
	}
	content := make([]byte, must(f.Size()))
	must(f.ReadAt(content, 0))
	var letters []byte
	for sector := range slices.Chunk(content, 512) {
		if !bytes.Equal(sector, bytes.Repeat(sector[:1], 512)) {
			t.Errorf("a sector is torn: %q", sector)
		}
		letters = append(letters, max(sector[0], '0'))
	}
	return string(letters)
}

// What was synced survives, and any subset of the other sectors, in any of their versions.
func TestUnsyncedSectorsAreLost(t *testing.T) {
	d := simdisk.New()
	f := durableFile(d, 4)
	write(f, "a", 0, 4)
	must(0, f.Sync())
	write(f, "b", 1, 2)
	write(f, "c", 2, 2)
	if got := read(t, d.Crash()); got != "aaaa" {
		t.Errorf("after a crash: %s", got)
	}
	found := make(map[string]bool)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		found[read(t, d.CrashTorn(rng))] = true
	}
	for letters := range found {
		if letters[0] != 'a' || !strings.ContainsRune("ab", rune(letters[1])) || !strings.ContainsRune("abc", rune(letters[2])) || !strings.ContainsRune("ac", rune(letters[3])) {
			t.Errorf("after a crash: %s", letters)
		}
	}
	if len(found) != 2*3*2 {
		t.Errorf("%d of 12 outcomes: %v", len(found), found)
	}
	if got := read(t, d); got != "abcc" {
		t.Errorf("without a crash: %s", got)
	}
}

// A write that goes on while the file is synced need not be durable after that.
func TestSyncTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := simdisk.New()
		f := durableFile(d, 2)
		d.SetSyncTime(10 * time.Millisecond)
		write(f, "a", 0, 1)
		go f.Sync()
		time.Sleep(5 * time.Millisecond)
		write(f, "b", 1, 1)
		during := d.Crash()
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		after := d.Crash()
		if got := read(t, during) + read(t, after); got != "00a0" {
			t.Errorf("after crashes during the sync and after it: %s", got)
		}
	})
}

// A name is durable when its directory has been synced; before that a power cut may leave the old
// one.
func TestUnsyncedNamesAreLost(t *testing.T) {
	d := simdisk.New()
	durableFile(d, 1)
	names := func(d *simdisk.Disk) string { return strings.Join(must(d.Files().ReadDir("dir")), " ") }
	f := must(d.Files().Create("dir/new", 512))
	must(0, f.Sync())
	must(0, d.Files().Rename("dir/new", "dir/b"))
	must(0, d.Files().Remove("dir/a"))
	if got := names(d.Crash()); got != "a" {
		t.Errorf("after a crash: %s", got)
	}
	found := make(map[string]bool)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		found[names(d.CrashTorn(rng))] = true
	}
	if len(found) != 4 || !found["a"] || !found["a b"] || !found["b"] || !found[""] {
		t.Errorf("after a hundred crashes: %v", found)
	}
	must(0, d.Files().SyncDir("dir"))
	if got := names(d.CrashTorn(rng)); got != "b" {
		t.Errorf("after a sync: %s", got)
	}
	if _, err := d.Files().Open("dir/a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that was removed: %v", err)
	}
}

// A file that was never synced may be empty.
func TestUnsyncedFileIsEmpty(t *testing.T) {
	d := simdisk.New()
	f := must(d.Files().Create("dir/a", 512))
	write(f, "a", 0, 1)
	must(0, d.Files().SyncDir("dir"))
	if got := read(t, d.Crash()); got != "" {
		t.Errorf("after a crash: %q", got)
	}
}

// When a sync has failed, readers see what was written, no later sync makes it durable, and a
// process that opens the file anew sees what is on the disk.
func TestFailedSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := simdisk.New()
		f := durableFile(d, 2)
		d.SetSyncTime(10 * time.Millisecond)
		write(f, "a", 0, 1)
		result := make(chan error)
		go func() { result <- f.Sync() }()
		synctest.Wait()
		d.Fail(syscall.EIO)
		if err := <-result; err != syscall.EIO {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(make([]byte, 512), 512); err != syscall.EIO {
			t.Errorf("written: %v", err)
		}
		d.Fail(nil)
		d.FailReads(syscall.EIO)
		if _, err := f.ReadAt(make([]byte, 1), 0); err != syscall.EIO {
			t.Errorf("read: %v", err)
		}
		d.FailReads(nil)
		write(f, "b", 1, 1)
		must(0, f.Sync())
		first := make([]byte, 1)
		if must(f.ReadAt(first, 0)); first[0] != 'a' {
			t.Errorf("readers see %q", first)
		}
		if got := read(t, d.Crash()) + read(t, d.Killed(rand.New(rand.NewPCG(1, 1)))); got != "0b0b" {
			t.Errorf("opened anew: %s", got)
		}
	})
}

// A program that is killed has written the first sectors of what it was writing, and loses nothing
// else.
func TestKilledWriter(t *testing.T) {
	d := simdisk.New()
	f := durableFile(d, 4)
	write(f, "a", 0, 1)
	write(f, "b", 1, 3)
	found := make(map[string]bool)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		killed := d.Killed(rng)
		found[read(t, killed)] = true
	}
	if len(found) != 4 || !found["a000"] || !found["ab00"] || !found["abb0"] || !found["abbb"] {
		t.Errorf("found %v", found)
	}
}

// Damage changes what readers see, and a power cut does not take it back.
func TestDamage(t *testing.T) {
	d := simdisk.New()
	f, err := d.Files().Create("a", 4096)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte{7}, 4096)
	if _, err := f.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), d.Files().SyncDir("")); err != nil {
		t.Fatal(err)
	}
	where := d.Damage(rand.New(rand.NewPCG(1, 1)))
	for _, disk := range []*simdisk.Disk{d, d.Crash()} {
		got := make([]byte, len(want))
		f, err := disk.Files().Open("a")
		if err == nil {
			_, err = f.ReadAt(got, 0)
		}
		if err != nil || bytes.Equal(got, want) {
			t.Errorf("%s: %v", where, err)
		}
	}
}

// A damaged snapshot is damaged for readers and behind a power cut, and nothing else is.
func TestDamageSnapshot(t *testing.T) {
	d, rng := simdisk.New(), rand.New(rand.NewPCG(1, 1))
	if id := d.DamageSnapshot(rng); id != "" {
		t.Errorf("a disk without snapshots: %q was damaged", id)
	}
	want := map[string]bool{}
	for index := range uint64(2) {
		sink, err := d.Create(1, index+1, 1, raft.Configuration{}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sink.Write([]byte("snapshot")); err != nil {
			t.Fatal(err)
		}
		if err := sink.Close(); err != nil {
			t.Fatal(err)
		}
		want[sink.ID()] = index == 0 // whole
	}
	id := d.DamageSnapshot(rng)
	if whole, known := want[id]; whole || !known {
		t.Errorf("damaged: %q", id)
	}
	for _, disk := range []*simdisk.Disk{d, d.Crash()} {
		for id, whole := range want {
			_, r, err := disk.Open(id)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || (string(got) == "snapshot") != whole {
				t.Errorf("snapshot %s: %q, %v", id, got, err)
			}
		}
	}
}
