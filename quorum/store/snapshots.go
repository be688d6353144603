package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	snapshotsDir  = "snapshots" // in the data directory
	snapshotsKept = 2
	// unfinishedSuffix marks the folder of a snapshot that is being written.
	unfinishedSuffix = ".tmp"
)

// snapshotFiles keeps snapshots in the folders of raft's file store. That store has a checksum of
// the state, and none of the metadata in meta.json, which names the members (UPSTREAM.md, 11). So
// the state file begins with a second copy of the metadata and a checksum:
//
//	 0      4       8       12      20     28              36                 n
//	+------+-------+-------+-------+------+---------------+------------------+---------- - -
//	|"LKSM"| crc32 | bytes | index | term | configuration | configuration    | state
//	|      |       | (n)   |       |      | index         |                  |
//	+------+-------+-------+-------+------+---------------+------------------+---------- - -
//
// Numbers are big-endian; the checksum, CRC-32C, covers the bytes from 8 to n. Only the file has
// this head: a member sends the state without it, and the receiver writes its own.
type snapshotFiles struct {
	store   *raft.FileSnapshotStore
	dir     string
	syncDir func(dir string) error
}

const (
	snapshotMagic     = "LKSM"
	snapshotHeadLen   = 36
	snapshotHeadBytes = 1 << 20 // of a plausible one: a cluster has at most 254 members
)

var _ raft.SnapshotStore = (*snapshotFiles)(nil)

// openSnapshotFiles opens, and creates where missing, dataDir/snapshots. It removes unfinished
// snapshots. Errors name the file.
//
// An existing snapshot need not be durable: its process may have been killed before it synced the
// directory, or have failed to. A member that starts with it acknowledges entries behind it. So all
// names are synced first.
func openSnapshotFiles(dataDir string, syncDir func(dir string) error) (_ *snapshotFiles, repaired []string,
	err error) {
	store, err := raft.NewFileSnapshotStoreWithLogger(dataDir, snapshotsKept, hclog.NewNullLogger())
	if err != nil {
		return nil, nil, fmt.Errorf("quorum: open snapshots in %s: %w", dataDir, err)
	}
	s := &snapshotFiles{store: store, dir: filepath.Join(dataDir, snapshotsDir), syncDir: syncDir}
	if err := s.restrict(); err != nil {
		return nil, nil, fmt.Errorf("quorum: open snapshots in %s: %w", dataDir, err)
	}
	repaired, err = s.sweep()
	if err != nil {
		return s, repaired, err
	}
	if err := errors.Join(s.sync(), syncDir(dataDir)); err != nil {
		return nil, nil, fmt.Errorf("quorum: open snapshots in %s: %w", dataDir, err)
	}
	return s, repaired, nil
}

// sync makes the names of all snapshots and their files durable.
func (s *snapshotFiles) sync() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := s.syncDir(filepath.Join(s.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return s.syncDir(s.dir)
}

// restrict lets nobody but the owner into the directory of the snapshots: they have the passwords
// of sessions, and the library makes them readable for everybody. A member that may not do that,
// since the directory belongs to another user, leaves it.
func (s *snapshotFiles) restrict() error {
	if err := os.Chmod(s.dir, 0o700); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// sweep removes snapshots that were not finished: the process ended meanwhile, and the log that led
// to them is there.
func (s *snapshotFiles) sweep() (removed []string, err error) {
	left, err := filepath.Glob(filepath.Join(s.dir, "*"+unfinishedSuffix))
	if err != nil {
		return nil, fmt.Errorf("quorum: list snapshots: %w", err)
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return removed, fmt.Errorf("quorum: remove unfinished snapshot: %w", err)
		}
		removed = append(removed, "removed the unfinished snapshot "+path+": the log is complete without it")
	}
	return removed, nil
}

// List implements raft.SnapshotStore.
func (s *snapshotFiles) List() ([]*raft.SnapshotMeta, error) { return s.store.List() }

// Open implements raft.SnapshotStore. It verifies the whole snapshot.
func (s *snapshotFiles) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, r, err := s.store.Open(id)
	if err != nil {
		return nil, nil, s.damaged(id, err)
	}
	head, err := readSnapshotHead(r)
	switch {
	case err != nil:
	case !bytes.Equal(head, snapshotHead(meta)) ||
		!strings.HasPrefix(id, fmt.Sprintf("%d-%d-", meta.Term, meta.Index)) || meta.ID != id:
		err = errors.New("meta.json does not match state.bin and the name of the folder")
	case meta.Version != raft.SnapshotVersionMax:
		err = fmt.Errorf("meta.json is of version %d", meta.Version)
	default:
		if st, serr := os.Stat(filepath.Join(s.dir, id, "state.bin")); serr != nil || st.Size() != meta.Size {
			err = errors.Join(errors.New("meta.json gives a wrong size"), serr)
		}
	}
	if err != nil {
		_ = r.Close()
		return nil, nil, s.damaged(id, err)
	}
	meta.Size -= int64(len(head))
	return meta, r, nil
}

func (s *snapshotFiles) damaged(id string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("quorum: snapshot %s: %w", filepath.Join(s.dir, id), err)
	}
	return fmt.Errorf("quorum: snapshot %s: %w: %w", filepath.Join(s.dir, id), ErrDamaged, err)
}

// Create implements raft.SnapshotStore.
func (s *snapshotFiles) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.store.Create(version, index, term, configuration, configurationIndex, trans)
	if err != nil {
		_, serr := s.sweep() // the library leaves a folder when the disk is full
		return nil, errors.Join(err, serr)
	}
	file := &snapshotFile{SnapshotSink: sink, dir: filepath.Join(s.dir, sink.ID()), syncDir: s.syncDir}
	if err := restrictSnapshot(file.dir + unfinishedSuffix); err != nil {
		_ = file.Cancel()
		return nil, fmt.Errorf("quorum: write snapshot: %w", err)
	}
	if file.state, err = os.Open(filepath.Join(file.dir+unfinishedSuffix, "state.bin")); err != nil {
		_ = file.Cancel()
		return nil, fmt.Errorf("quorum: write snapshot: %w", err)
	}
	head := snapshotHead(&raft.SnapshotMeta{Index: index, Term: term, Configuration: configuration,
		ConfigurationIndex: configurationIndex})
	if _, err := file.Write(head); err != nil {
		_ = file.Cancel()
		return nil, err
	}
	return file, nil
}

// restrictSnapshot lets nobody but the owner read a snapshot that is about to be written.
func restrictSnapshot(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Chmod(filepath.Join(dir, f.Name()), 0o600); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o700)
}

// writeBackBytes is how much of a snapshot may wait to be written to the disk. All at once, in the
// end, it would hold up the log, which is mostly on the same one: writes of 128 clients with a
// million nodes took 70 ms now and then (p99.9), and take 26.
const writeBackBytes = 1 << 20

// snapshotFile is a snapshot that is being written.
type snapshotFile struct {
	raft.SnapshotSink
	dir     string // when it is finished
	syncDir func(dir string) error
	state   *os.File // the file that SnapshotSink writes
	waiting int64    // bytes at its end that are not written back yet
	written int64    // bytes in front of them
	ended   bool     // closed or cancelled
	err     error    // of Close, which is called more than once
}

// Write implements raft.SnapshotSink.
func (f *snapshotFile) Write(b []byte) (int, error) {
	n, err := f.SnapshotSink.Write(b)
	f.waiting += int64(n)
	if err == nil && f.waiting >= writeBackBytes {
		err = writeBack(f.state, f.written, f.waiting)
		f.written += f.waiting
		f.waiting = 0
	}
	return n, err
}

// Close implements raft.SnapshotSink. When it returns nil, the snapshot survives a power cut, so
// that the log behind it may go.
func (f *snapshotFile) Close() error {
	if !f.ended {
		f.ended, f.err = true, f.finish()
	}
	return f.err
}

// finish makes the snapshot durable, or removes it: if it was listed all the same, it would count
// as one of those that are kept.
func (f *snapshotFile) finish() error {
	_ = f.state.Close()
	// Order: the names in the folder are durable before the library gives the folder its name,
	// which it syncs, and removes older snapshots.
	err := f.syncDir(f.dir + unfinishedSuffix)
	if err == nil {
		err = f.SnapshotSink.Close()
	} else {
		_ = f.SnapshotSink.Cancel()
	}
	if err != nil {
		_, _ = os.RemoveAll(f.dir+unfinishedSuffix), os.RemoveAll(f.dir)
		return fmt.Errorf("quorum: write snapshot %s: %w", f.dir, err)
	}
	return nil
}

// Cancel implements raft.SnapshotSink.
func (f *snapshotFile) Cancel() error {
	if !f.ended {
		f.ended, f.err = true, fmt.Errorf("quorum: write snapshot %s: cancelled", f.dir)
	}
	_ = f.state.Close()
	// The library gives up before it has removed anything when the disk is full.
	return errors.Join(f.SnapshotSink.Cancel(), os.RemoveAll(f.dir+unfinishedSuffix))
}

// snapshotHead encodes the head of a state file.
func snapshotHead(m *raft.SnapshotMeta) []byte {
	b := append([]byte(snapshotMagic), 0, 0, 0, 0, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, m.Index)
	b = binary.BigEndian.AppendUint64(b, m.Term)
	b = binary.BigEndian.AppendUint64(b, m.ConfigurationIndex)
	b = append(b, raft.EncodeConfiguration(m.Configuration)...)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)))
	binary.BigEndian.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return b
}

// readSnapshotHead reads it, and checks it against itself.
func readSnapshotHead(r io.Reader) ([]byte, error) {
	head := make([]byte, snapshotHeadLen)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, fmt.Errorf("state.bin: %w", err)
	}
	n := binary.BigEndian.Uint32(head[8:])
	if string(head[:4]) != snapshotMagic || n < snapshotHeadLen || n > snapshotHeadBytes {
		return nil, errors.New("state.bin does not begin as it should")
	}
	head = append(head, make([]byte, n-snapshotHeadLen)...)
	if _, err := io.ReadFull(r, head[snapshotHeadLen:]); err != nil {
		return nil, fmt.Errorf("state.bin: %w", err)
	}
	if binary.BigEndian.Uint32(head[4:]) != crc32.Checksum(head[8:], castagnoli) {
		return nil, errors.New("state.bin: its first checksum does not match")
	}
	return head, nil
}

// verify reads every snapshot. The newest must be whole: the log that led to it is gone. A damaged
// older one is removed: nothing depends on it.
func (s *snapshotFiles) verify() (newest *raft.SnapshotMeta, repaired []string, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("quorum: list snapshots: %w", err)
	}
	broken := map[string]error{}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		meta, r, err := s.Open(e.Name())
		if err != nil {
			broken[e.Name()] = err
			continue
		}
		_ = r.Close()
		if newest == nil || snapshotName(meta.ID).after(snapshotName(newest.ID)) {
			newest = meta
		}
	}
	for name, err := range broken {
		if newest == nil || !snapshotName(newest.ID).after(snapshotName(name)) {
			return nil, nil, err
		}
		if rerr := os.RemoveAll(filepath.Join(s.dir, name)); rerr != nil {
			return nil, nil, errors.Join(err, rerr)
		}
		repaired = append(repaired, fmt.Sprintf("removed a damaged snapshot, the newer %s is whole: %v", newest.ID,
			err))
	}
	return newest, repaired, nil
}

// snapshotName is the name of a snapshot's folder: term-index-milliseconds.
type snapshotName string

// after says that n is newer than o. A name that cannot be read is newer than any other.
func (n snapshotName) after(o snapshotName) bool {
	a, ok := n.parse()
	b, ok2 := o.parse()
	if !ok || !ok2 {
		return !ok
	}
	for i := range a {
		if a[i] != b[i] {
			return a[i] > b[i]
		}
	}
	return false
}

func (n snapshotName) parse() (parts [3]uint64, ok bool) {
	var rest string
	k, err := fmt.Sscanf(string(n)+"\n", "%d-%d-%d%s", &parts[0], &parts[1], &parts[2], &rest)
	return parts, k == 3 && err != nil
}

// Snapshot is a finished snapshot.
type Snapshot struct {
	*raft.SnapshotMeta
	Name string    // its folder, for messages
	At   time.Time // when it was taken; zero if the store does not say
	from raft.SnapshotStore
}

// Newest returns the newest snapshot; nil if there is none.
func (s *Stores) Newest() (*Snapshot, error) {
	list, err := s.Snapshots.List()
	if err != nil {
		return nil, fmt.Errorf("quorum: list snapshots: %w", err)
	}
	if len(list) == 0 {
		return nil, nil
	}
	n := &Snapshot{SnapshotMeta: list[0], Name: list[0].ID, from: s.Snapshots}
	if files, ok := s.Snapshots.(*snapshotFiles); ok {
		n.Name = filepath.Join(files.dir, n.ID)
	}
	if parts, ok := snapshotName(n.ID).parse(); ok {
		n.At = time.UnixMilli(int64(parts[2]))
	}
	return n, nil
}

// Open verifies the snapshot and returns its state. Errors name it.
func (n *Snapshot) Open() (io.ReadCloser, error) {
	_, r, err := n.from.Open(n.ID)
	if err != nil {
		return nil, fmt.Errorf("quorum: open snapshot %s: %w", n.Name, err)
	}
	return r, nil
}

// WriteSnapshot writes a state as the snapshot of an index and a term. It is durable when
// WriteSnapshot returns nil.
func (s *Stores) WriteSnapshot(members raft.Configuration, index, term uint64, state io.WriterTo) error {
	// The library also writes the members in an old format, which asks the transport for names.
	_, transport := raft.NewInmemTransport("")
	sink, err := s.Snapshots.Create(raft.SnapshotVersionMax, index, term, members, 1, transport)
	if err != nil {
		return err
	}
	if _, err := state.WriteTo(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}
