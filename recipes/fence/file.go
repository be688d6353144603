package fence

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"lockkeeper/internal/durable"
)

// File remembers in a file, which any number of processes of one machine may share. A token is
// durable before Check accepts it. Its methods may be called from any goroutine.
//
// The file is text, replaced as a whole (written beside, synced, renamed, the directory synced),
// for a few thousand resources at the most:
//
//	lockkeeper-fence 1
//	4294967311 "/locks/account"      the largest token, the resource as strconv.QuoteToASCII has it
//	crc32c 9ab0c1d2                  of all the bytes before this line
//
// The fences of clients/python and clients/java have the same file and the same lock, so programs
// of the three languages may share it.
//
// A file that is damaged is never taken for an empty one: every Check fails with ErrDamaged and the
// file's name, until an operator has repaired or removed it. Beside it stands an empty file with
// ".lock" added to the name, which makes processes wait for each other; do not delete it while one
// runs. The directory has to be there, and durable.
//
// A token that the file already has is not durable for that reason: the process that wrote it may
// have failed, or have been killed, before it synced the directory. So a File writes the file anew
// before it accepts a token, unless the file has exactly the bytes that this File made durable
// last. Each File does so once after OpenFile, and once after each change by another process.
type File struct {
	path  string
	files durable.FS

	mu      sync.Mutex
	lock    *os.File // one lock per open file, so mu is needed too
	durable []byte   // the content that this File made durable last; nil after a failure
}

const (
	fileHead = "lockkeeper-fence 1\n"
	fileTail = "crc32c "
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// OpenFile opens the file at path. That there is none is all right, it is made by the first Check;
// that it is damaged is an error.
func OpenFile(path string) (*File, error) { return openFile(path, durable.OS{Mode: 0o644}) }

// openFile is OpenFile on any file system. The lock file is always one of the operating system's.
func openFile(path string, files durable.FS) (*File, error) {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("fence: open %s: %w", path, err)
	}
	f := &File{path: path, files: files, lock: lock}
	if _, _, err := f.read(); err != nil {
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

// Check accepts a token or refuses it. When it returns nil the token is durable. With an error
// other than ErrStale it is not known whether the token is remembered: try again.
func (f *File) Check(resource string, token int64) error {
	return f.Do(resource, token, func() error { return nil })
}

// Do calls g if the token is accepted, and returns the error of g. While g runs every other Check
// and Do waits, in any process that uses the file.
func (f *File) Do(resource string, token int64, g func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := lockFile(f.lock, true); err != nil {
		return fmt.Errorf("fence: lock %s: %w", f.path, err)
	}
	defer unlockFile(f.lock)
	tokens, data, err := f.read()
	if err != nil {
		return err
	}
	larger, err := check(resource, token, tokens[resource])
	if err != nil {
		return err
	}
	if larger || !bytes.Equal(data, f.durable) {
		tokens[resource] = token
		if err := f.write(encode(tokens)); err != nil {
			return fmt.Errorf("fence: write %s: %w", f.path, err)
		}
	}
	return g()
}

// Newest returns the largest token seen; 0 if none. It may be one that is not durable yet.
func (f *File) Newest(resource string) (int64, error) {
	tokens, _, err := f.read()
	return tokens[resource], err
}

// read returns the tokens, and the bytes of the file; nil if there is none. It needs no lock: the
// file is replaced, never changed.
func (f *File) read() (map[string]int64, []byte, error) {
	data, err := f.files.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return make(map[string]int64), nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("fence: read %s: %w", f.path, err)
	}
	tokens, err := decode(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", ErrDamaged, f.path, err)
	}
	return tokens, data, nil
}

// write replaces the file, and returns nil when the new one is durable.
func (f *File) write(data []byte) error {
	f.durable = nil
	// The lock is held: no other process writes to the file.
	if err := durable.Replace(f.files, f.path, data); err != nil {
		return err
	}
	f.durable = data
	return nil
}

func encode(tokens map[string]int64) []byte {
	b := []byte(fileHead)
	for _, resource := range slices.Sorted(maps.Keys(tokens)) {
		b = fmt.Appendf(b, "%d %+q\n", tokens[resource], resource)
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
