package fence

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// File remembers in a file, which any number of processes of one machine may share. A token is on
// the disk before it is accepted for the first time. Its methods may be called from any goroutine.
//
// The file is text, replaced as a whole (written beside, synced, renamed, the
// directory synced), for a few thousand resources at the most:
//
//	lockkeeper-fence 1
//	4294967311 "/locks/account"      the largest token, the resource as Go quotes it
//	crc32c 9ab0c1d2                  of all the bytes before this line
//
// A file that is damaged is never taken for an empty one: every Check fails with
// ErrDamaged and the file's name, until an operator has repaired or removed it. Beside
// it stands an empty file with ".lock" added to the name, which makes processes
// wait for each other; do not delete it while one runs.
type File struct {
	path string

	mu   sync.Mutex
	lock *os.File // flock is per open file, so mu is needed too
}

const (
	fileHead = "lockkeeper-fence 1\n"
	fileTail = "crc32c "
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// OpenFile opens the file at path. That there is none is all right, it is made by
// the first Check; that it is damaged is an error.
func OpenFile(path string) (*File, error) {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("fence: open %s: %w", path, err)
	}
	f := &File{path: path, lock: lock}
	if _, err := f.read(); err != nil {
		lock.Close()
		return nil, err
	}
	return f, nil
}

// Close closes the file. Checks fail after it.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lock.Close()
}

// Check accepts a token or refuses it. When it returns nil the token is on the
// disk. With an error other than ErrStale it is not known whether it is: try again.
func (f *File) Check(resource string, token int64) error {
	return f.Do(resource, token, func() error { return nil })
}

// Do calls g if the token is accepted, and returns what g returns. While g runs every
// other Check and Do waits, in any process that uses the file.
func (f *File) Do(resource string, token int64, g func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := flock(f.lock, syscall.LOCK_EX); err != nil {
		return fmt.Errorf("fence: lock %s: %w", f.path, err)
	}
	defer flock(f.lock, syscall.LOCK_UN)
	tokens, err := f.read()
	if err != nil {
		return err
	}
	larger, err := check(resource, token, tokens[resource])
	if err != nil {
		return err
	}
	if larger {
		tokens[resource] = token
		if err := f.write(tokens); err != nil {
			return fmt.Errorf("fence: write %s: %w", f.path, err)
		}
	}
	return g()
}

func flock(lock *os.File, how int) error {
	for {
		if err := syscall.Flock(int(lock.Fd()), how); err != syscall.EINTR {
			return err
		}
	}
}

// Newest returns the largest token seen; 0 if none.
func (f *File) Newest(resource string) (int64, error) {
	tokens, err := f.read()
	return tokens[resource], err
}

// read needs no lock: the file is replaced, never changed.
func (f *File) read() (map[string]int64, error) {
	data, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return make(map[string]int64), nil
	}
	if err != nil {
		return nil, fmt.Errorf("fence: read %s: %w", f.path, err)
	}
	tokens, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, f.path, err)
	}
	return tokens, nil
}

func (f *File) write(tokens map[string]int64) error {
	dir, name := filepath.Split(f.path)
	if dir == "" {
		dir = "."
	}
	// The lock is held: no other process writes to this name.
	temp := filepath.Join(dir, name+".new")
	if err := writeSynced(temp, encode(tokens)); err != nil {
		return err
	}
	if err := os.Rename(temp, f.path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func writeSynced(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

func encode(tokens map[string]int64) []byte {
	b := []byte(fileHead)
	for _, resource := range slices.Sorted(maps.Keys(tokens)) {
		b = fmt.Appendf(b, "%d %q\n", tokens[resource], resource)
	}
	return fmt.Appendf(b, "%s%08x\n", fileTail, crc32.Checksum(b, castagnoli))
}

func decode(data []byte) (map[string]int64, error) {
	if !bytes.HasPrefix(data, []byte(fileHead)) {
		return nil, errors.New("it does not begin as such a file does")
	}
	end := bytes.LastIndex(data, []byte("\n"+fileTail)) + 1
	if end == 0 {
		return nil, errors.New("its end is missing")
	}
	body := data[:end]
	if want := fmt.Sprintf("%s%08x\n", fileTail, crc32.Checksum(body, castagnoli)); string(data[end:]) != want {
		return nil, errors.New("the checksum is wrong")
	}
	tokens := make(map[string]int64)
	for line := range strings.Lines(string(body[len(fileHead):])) {
		number, quoted, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		token, err := strconv.ParseInt(number, 10, 64)
		resource, qerr := strconv.Unquote(quoted)
		if err := errors.Join(err, qerr); err != nil {
			return nil, err
		}
		tokens[resource] = token
	}
	return tokens, nil
}
