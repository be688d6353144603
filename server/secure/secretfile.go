package secure

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/loglimit"
	"lockkeeper/quorum/peer"
)

const (
	maxSecretFileBytes = 4 << 10
	// secretFileLook is how often the file is looked at, at most.
	secretFileLook = 500 * time.Millisecond
)

// SecretFile is the file of peer.secretFile: one secret in a line, or two, of which the first is
// used and both are accepted. It is read again when it has changed.
type SecretFile struct {
	path     string
	log      *loglimit.Limiter
	Failures atomic.Int64 // readings after the first one that failed

	mu      sync.Mutex
	looked  time.Time
	seen    fileStamp // of the last reading, also if that failed
	secrets [][]byte
}

// fileStamp tells whether a file is another one than before.
type fileStamp struct {
	modified time.Time
	size     int64
	file     os.FileInfo // for os.SameFile
}

func (s fileStamp) same(o fileStamp) bool {
	return s.file != nil && o.file != nil && s.modified.Equal(o.modified) && s.size == o.size &&
		os.SameFile(s.file, o.file)
}

// OpenSecretFile reads the file for the first time.
func OpenSecretFile(path string, log *slog.Logger) (*SecretFile, error) {
	f := &SecretFile{path: path, log: loglimit.New(log)}
	var err error
	f.secrets, f.seen, err = ReadSecrets(path)
	f.looked = time.Now()
	return f, err
}

// Current are the secrets of the file. As long as it cannot be read after a change, those that were
// read before count.
func (f *SecretFile) Current() [][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.looked) < secretFileLook {
		return f.secrets
	} else {
		f.looked = now
	}
	if info, err := os.Stat(f.path); err == nil && f.seen.same(stampOf(info)) {
		return f.secrets
	}
	secrets, stamp, err := ReadSecrets(f.path)
	f.seen = stamp
	if err != nil {
		f.Failures.Add(1)
		f.log.Error("read", "peer.secretFile cannot be used; what it had before still counts", "file", f.path, "err",
			err)
		return f.secrets
	}
	if !sameSecrets(secrets, f.secrets) {
		f.log.Warn(stamp.modified.String(), "peer.secretFile has changed", "file", f.path, "secrets", len(secrets))
	}
	f.secrets = secrets
	return secrets
}

func sameSecrets(a, b [][]byte) bool {
	return bytes.Equal(bytes.Join(a, []byte("\n")), bytes.Join(b, []byte("\n")))
}

func stampOf(info os.FileInfo) fileStamp {
	return fileStamp{modified: info.ModTime(), size: info.Size(), file: info}
}

// ReadSecrets reads the file. The stamp is valid also with an error. No error has a secret in it.
func ReadSecrets(path string) (secrets [][]byte, stamp fileStamp, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, stamp, withoutPath(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, stamp, withoutPath(err)
	}
	stamp = stampOf(info)
	if !info.Mode().IsRegular() {
		return nil, stamp, errors.New("is no regular file")
	}
	// A group may read it: Kubernetes and systemd hand secrets to a service like that.
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o027 != 0 {
		return nil, stamp, fmt.Errorf("others than its owner may read or change it (its mode is %04o): chmod 600 %s",
			mode, path)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxSecretFileBytes+1))
	if err != nil {
		return nil, stamp, withoutPath(err)
	}
	if len(text) > maxSecretFileBytes {
		return nil, stamp, fmt.Errorf("has more than %d bytes", maxSecretFileBytes)
	}
	secrets, err = parseSecrets(text)
	return secrets, stamp, err
}

// parseSecrets reads the lines of the file.
func parseSecrets(text []byte) (secrets [][]byte, err error) {
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if len(line) < peer.MinSecretBytes {
			return nil, fmt.Errorf("the secret in line %d has %d bytes, and must have at least %d: openssl rand -hex "+
				"32 makes one",
				number, len(line), peer.MinSecretBytes)
		}
		secrets = append(secrets, line)
	}
	switch len(secrets) {
	case 0:
		return nil, errors.New("has no secret in it")
	case 1, 2:
		return secrets, nil
	}
	return nil, fmt.Errorf("has %d secrets, and may have two", len(secrets))
}

// withoutPath is err without the name of the file, which the message has already.
func withoutPath(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
