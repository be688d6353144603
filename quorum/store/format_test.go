package store

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a later version has written is refused at the start. The message names the file, the format
// in it and the formats that are read. Package quorum tests entries and the state.
func TestNewerFormatsAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, dir string)
		names  []string
	}{
		"a segment": {func(t *testing.T, dir string) {
			rewrite(t, filepath.Join(dir, segmentLogDir, "*.log"), func(b []byte) {
				b[11]++ // its format
				binary.BigEndian.PutUint32(b[4:], crc32.Checksum(b[8:72], castagnoli))
			})
		}, []string{segmentLogDir + "/0000000000000001.log", "format 2", "reads 1"}},
		"raft.db": {func(t *testing.T, dir string) {
			f, err := openBoltFile(filepath.Join(dir, logFileName))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(f.SetUint64(boltFormatKey, boltFormat+1), f.Close()); err != nil {
				t.Fatal(err)
			}
		}, []string{logFileName, "format 2", "reads 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := grown(t)
			tc.change(t, dir)
			err := reopen(dir)
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("%v, want ErrFormat", err)
			}
			for _, want := range append(tc.names, dir) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

// rewrite changes the content of the one file that matches a pattern.
func rewrite(t *testing.T, pattern string, change func(b []byte)) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	change(b)
	if err := os.WriteFile(files[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
}
