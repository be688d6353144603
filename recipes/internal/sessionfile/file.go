package sessionfile

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"lockkeeper/internal/durable"
)

// Errors of Open, beside those of the file system.
var (
	// ErrInUse: another process has the file.
	ErrInUse = errors.New("recipes: another process has the session file, or one that it has started")
	// ErrDamaged: the content is not one that this package has written.
	ErrDamaged = errors.New("recipes: session file is damaged")
	// ErrExposed: others may read the file, or it is another user's.
	ErrExposed = errors.New("recipes: session file is not this user's alone")
)

// Session has the secrets by which a client attaches to a session.
type Session struct {
	ID        int64  // 0: none
	TimeoutMs int32  // the shortest that was ever granted
	Password  []byte // passwordSize bytes
}

// passwordSize is the size of every session's password, in bytes.
const passwordSize = 16

// Held is something that a process holds.
type Held struct {
	Path  string // of the lock, the election or the group
	Node  string // full path
	Token int64  // czxid of the node
}

// state is the content of the file.
type state struct {
	place   string
	session Session
	held    []Held
}

// File is a session file, which no other process may use. Its methods may be called from one
// goroutine at a time.
//
// The file is text, replaced as a whole:
//
//	lockkeeper-session 1
//	place "3ff12a5e-.../2049/131"             the boot of the machine, device and inode of the lock
//	session 0x100008c2f4b0000 10000 5f0c...   id, timeout in ms, password in hexadecimal
//	held 4294967311 "/locks/a" "/locks/a/_c_5f0c...-lock-0000000000"
//	crc32c 9ab0c1d2                           of all the bytes before this line
//
// Beside it stands an empty file with ".lock" added to the name, which stays.
type File struct {
	path  string
	place string
	lock  *os.File
	files durable.FS
	// shared: another process may have the lock, and shall keep the file when this one ends.
	shared atomic.Bool
}

const (
	head = "lockkeeper-session 1\n"
	tail = "crc32c "
	mode = 0o600
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// open opens the file at path and returns its content; a zero state if there is no file.
func open(path string, files durable.FS) (f *File, s state, err error) {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, mode)
	if err != nil {
		return nil, s, err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	if err := private(lock); err != nil {
		return nil, s, fmt.Errorf("%s: %w", lock.Name(), err)
	}
	if err := lockFile(lock); err != nil {
		return nil, s, fmt.Errorf("%s: %w", path, err)
	}
	f = &File{path: path, lock: lock, files: files}
	if f.place, err = place(lock); err != nil {
		return nil, s, fmt.Errorf("%s: %w", path, err)
	}
	data, err := read(path)
	if err == nil && data != nil {
		s, err = decode(data)
	}
	if err != nil {
		return nil, s, fmt.Errorf("%s: %w", path, err)
	}
	return f, s, nil
}

// read reads a file of this user's alone; nil if there is none.
func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := private(file); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(file)
	if data == nil {
		data = []byte{}
	}
	return data, err
}

// write replaces the content. When it returns nil, that is durable.
func (f *File) write(s state) error {
	s.place = f.place
	if err := durable.Replace(f.files, f.path, encode(s)); err != nil {
		return fmt.Errorf("recipes: write session file %s: %w", f.path, err)
	}
	return nil
}

// remove removes the file and gives it to others.
func (f *File) remove() error {
	err := f.files.Remove(f.path)
	if err == nil {
		err = f.files.SyncDir(filepath.Dir(f.path))
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, f.close())
}

// close gives the file to others, and leaves it as it is. It ends the lock itself, because a
// process that this one is starting has the open file until its own program begins. A shared lock
// ends with its last holder.
func (f *File) close() (err error) {
	if !f.shared.Load() {
		err = unlockFile(f.lock)
	}
	return errors.Join(err, f.lock.Close())
}

func encode(s state) []byte {
	b := []byte(head)
	b = fmt.Appendf(b, "place %+q\n", s.place)
	b = fmt.Appendf(b, "session %#x %d %x\n", uint64(s.session.ID), s.session.TimeoutMs, s.session.Password)
	for _, h := range s.held {
		b = fmt.Appendf(b, "held %d %+q %+q\n", h.Token, h.Path, h.Node)
	}
	return fmt.Appendf(b, "%s%08x\n", tail, crc32.Checksum(b, castagnoli))
}

// decode is the inverse of encode. Its errors are ErrDamaged.
func decode(data []byte) (state, error) {
	s, err := parse(data)
	if err != nil {
		return state{}, fmt.Errorf("%w: %w (remove it to start with a new session)", ErrDamaged, err)
	}
	return s, nil
}

func parse(data []byte) (s state, err error) {
	if !bytes.HasPrefix(data, []byte(head)) {
		return s, errors.New("it does not begin as such a file does")
	}
	end := bytes.LastIndex(data, []byte("\n"+tail)) + 1
	if end == 0 {
		return s, errors.New("its end is missing")
	}
	body := data[:end]
	if want := fmt.Sprintf("%s%08x\n", tail, crc32.Checksum(body, castagnoli)); string(data[end:]) != want {
		return s, errors.New("the checksum is wrong")
	}
	for line := range strings.Lines(string(body[len(head):])) {
		key, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch key {
		case "place":
			s.place, err = strconv.Unquote(rest)
		case "session":
			s.session, err = parseSession(rest)
		case "held":
			var h Held
			_, err = fmt.Sscanf(rest, "%d %q %q", &h.Token, &h.Path, &h.Node)
			s.held = append(s.held, h)
		default:
			err = errors.New("unknown line")
		}
		if err != nil {
			return s, fmt.Errorf("line %q: %w", key, err)
		}
	}
	if s.session.ID == 0 || s.place == "" {
		return s, errors.New("it names no session")
	}
	return s, nil
}

func parseSession(text string) (s Session, err error) {
	words := strings.Fields(text)
	if len(words) != 3 {
		return s, errors.New("not three words")
	}
	id, err := strconv.ParseUint(words[0], 0, 64)
	timeoutMs, terr := strconv.ParseInt(words[1], 10, 32)
	password, perr := hex.DecodeString(words[2])
	if perr == nil && len(password) != passwordSize {
		perr = fmt.Errorf("a password of %d bytes", len(password))
	}
	return Session{ID: int64(id), TimeoutMs: int32(timeoutMs), Password: password}, errors.Join(err, terr, perr)
}
