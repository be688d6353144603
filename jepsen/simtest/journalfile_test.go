package simtest

import (
	"fmt"
	"os"
	"syscall"
)

// journalFile is a file that is written through memory: a program that writes to a file is not the
// same program, for Go lets others run meanwhile; and it is there when the program crashes. It ends
// at the first byte that is 0.
type journalFile struct {
	f    *os.File
	mem  []byte
	used int
}

// journalMaxBytes bounds a journal; later lines are dropped.
const journalMaxBytes = 1 << 30

func createJournal(name string) (*journalFile, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if err := f.Truncate(journalMaxBytes); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, journalMaxBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("journal: map %s: %w", name, err)
	}
	return &journalFile{f: f, mem: mem}, nil
}

func (j *journalFile) line(text string) {
	if j.used+len(text)+1 <= len(j.mem) {
		j.used += copy(j.mem[j.used:], text)
		j.used += copy(j.mem[j.used:], "\n")
	}
}

func (j *journalFile) close() error {
	err := syscall.Munmap(j.mem)
	if terr := j.f.Truncate(int64(j.used)); err == nil {
		err = terr
	}
	if cerr := j.f.Close(); err == nil {
		err = cerr
	}
	return err
}
