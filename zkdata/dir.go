package zkdata

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockkeeper/wire"
)

// versionDir is the folder, in dataDir and in dataLogDir, that has the files.
const versionDir = "version-2"

// File is a snapshot or a log.
type File struct {
	Path string
	// Zxid is the number in the file's name: of a snapshot, the last transaction that is wholly in
	// it; of a log, its first transaction.
	Zxid  wire.Zxid
	Bytes int64
}

// Files are the files of one ZooKeeper server.
type Files struct {
	Snapshots []File // the newest first
	Logs      []File // the oldest first
	// CurrentEpoch and AcceptedEpoch are the numbers in the files of these names; -1 without.
	CurrentEpoch, AcceptedEpoch int64
}

// Empty reports whether there is no data.
func (f *Files) Empty() bool { return len(f.Snapshots) == 0 && len(f.Logs) == 0 }

// List finds the files of a server. dataDir and dataLogDir are the values in its zoo.cfg;
// dataLogDir may be empty. Directories that do not exist have no files.
func List(dataDir, dataLogDir string) (*Files, error) {
	data := filepath.Join(dataDir, versionDir)
	logs := filepath.Join(cmp.Or(dataLogDir, dataDir), versionDir)
	f := &Files{}
	var err error
	if f.Snapshots, err = numbered(data, "snapshot."); err != nil {
		return nil, err
	}
	slices.Reverse(f.Snapshots)
	if f.Logs, err = numbered(logs, "log."); err != nil {
		return nil, err
	}
	if f.CurrentEpoch, err = epoch(filepath.Join(data, "currentEpoch")); err != nil {
		return nil, err
	}
	if f.AcceptedEpoch, err = epoch(filepath.Join(data, "acceptedEpoch")); err != nil {
		return nil, err
	}
	return f, nil
}

// numbered lists the files prefix<hex zxid>, with or without the suffix of a compression, the
// lowest first. Other files are not ZooKeeper's.
func numbered(dir, prefix string) (files []File, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("zkdata: %w", err)
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), prefix)
		if !ok || e.IsDir() {
			continue
		}
		if prefix == "snapshot." {
			number = strings.TrimSuffix(strings.TrimSuffix(number, ".gz"), ".snappy")
		}
		zxid, err := strconv.ParseUint(number, 16, 64)
		if err != nil {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, fmt.Errorf("zkdata: %w", err)
		}
		files = append(files, File{Path: filepath.Join(dir, e.Name()), Zxid: wire.Zxid(zxid), Bytes: info.Size()})
	}
	slices.SortStableFunc(files, func(a, b File) int { return cmp.Compare(a.Zxid, b.Zxid) })
	return files, nil
}

func epoch(path string) (int64, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return -1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("zkdata: %w", err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || n < 0 {
		return 0, &DamageError{File: path, Reason: fmt.Sprintf("%.40q is no epoch", b)}
	}
	return n, nil
}

// Options say how to read a directory.
type Options struct {
	// Extended is whether ZooKeeper ran with extendedTypesEnabled: see KindOf.
	Extended bool
	// NoTTL says that ZooKeeper certainly ran without it. If that is not known, nodes with the
	// owner of a TTL node are refused with ErrTTL.
	NoTTL bool
	// TrustEmpty accepts logs without a snapshot (snapshot.trust.empty).
	TrustEmpty bool
	// EachTxn, unless nil, is called with each transaction that is applied.
	EachTxn func(*Txn)
	// Progress, unless nil, is called now and then with the bytes of files that have been read.
	Progress func(bytes int64)
	// Limits bound the state of the snapshot.
	Limits Limits
}

// Report is the result of Load.
type Report struct {
	Snapshot File // that the state began with; the zero File without
	Logs     []File
	Txns     int // that were applied
	// Notices are for the operator who moves the data: skipped files, torn records, nodes of
	// expired sessions.
	Notices []string
}

func (r *Report) notice(format string, args ...any) {
	r.Notices = append(r.Notices, fmt.Sprintf(format, args...))
}

// Load returns the state that ZooKeeper would have after a start with these files. ErrNoSnapshot:
// there are only logs. ErrTooLarge: Options.Limits. Errors name the file; a DamageError names the
// offset, too.
//
// Like ZooKeeper it begins with the newest snapshot that can be read, and with an empty state if
// there is no file. Unlike ZooKeeper it fails if the logs do not lead from an older snapshot past
// the damaged one: then transactions that were acknowledged would be missing.
func Load(f *Files, o Options) (*State, *Report, error) {
	r := &Report{}
	l := &loader{o: o, report: r}
	s, damaged, err := l.snapshot(f)
	if err != nil {
		return nil, r, err
	}
	for _, log := range logsFrom(f.Logs, s.Zxid+1) {
		if err := l.log(log, s, r.Snapshot.Zxid); err != nil {
			return nil, r, err
		}
	}
	if damaged != nil && s.Zxid < damaged.zxid {
		return nil, r, fmt.Errorf("%w; the logs do not lead from the snapshot before it to it, but to zxid %v only",
			damaged.err, s.Zxid)
	}
	for path, n := range s.Nodes() {
		if n.ACL == nil {
			return nil, r, &DamageError{File: r.Snapshot.Path,
				Reason: fmt.Sprintf("node %q has an ACL that is not there", path)}
		}
	}
	if marked := s.markedTTL(); len(marked) > 0 && !o.Extended && !o.NoTTL {
		return nil, r, fmt.Errorf("zkdata: %w: %d of them, %q for one", ErrTTL, len(marked), marked[0])
	}
	if dead := s.RemoveExpiredSessions(o.Extended); len(dead) > 0 {
		r.notice("%d ephemeral nodes belong to sessions that have ended, and are left out, %q among them", len(dead),
			dead[0])
	}
	return s, r, nil
}

// ErrTTL says that there are nodes with the owner of a TTL node, and that it is not known whether
// ZooKeeper ran with extendedTypesEnabled: without it they are of sessions that have ended.
var ErrTTL = errors.New("there are nodes with the mark of a TTL node")

// ErrNoSnapshot says that a directory has logs and no snapshot, which ZooKeeper does not start with
// either.
var ErrNoSnapshot = errors.New("there are transaction logs and no snapshot (snapshot.trust.empty=true accepts that)")

type loader struct {
	o      Options
	report *Report
	read   int64
}

// damagedSnapshot is a newer snapshot than the one that is used.
type damagedSnapshot struct {
	zxid wire.Zxid
	err  error
}

// snapshot reads the newest snapshot that is whole.
func (l *loader) snapshot(f *Files) (s *State, damaged *damagedSnapshot, err error) {
	for _, file := range f.Snapshots {
		whole, err := complete(file)
		if err != nil {
			return nil, nil, err
		}
		if !whole {
			l.report.notice("%s was not finished, and is passed over, as ZooKeeper does", file.Path)
			continue
		}
		s, err := l.readSnapshot(file)
		if errors.Is(err, ErrDamaged) {
			l.report.notice("%v: the snapshot before it is used, as ZooKeeper does", err)
			if damaged == nil {
				damaged = &damagedSnapshot{file.Zxid, err}
			}
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		s.Zxid = file.Zxid
		l.report.Snapshot = file
		return s, damaged, nil
	}
	switch {
	case damaged != nil:
		return nil, nil, damaged.err
	case len(f.Logs) > 0 && !l.o.TrustEmpty:
		return nil, nil, fmt.Errorf("zkdata: %s: %w", filepath.Dir(f.Logs[0].Path), ErrNoSnapshot)
	}
	return NewState(), nil, nil
}

func (l *loader) readSnapshot(file File) (*State, error) {
	r, err := os.Open(file.Path)
	if err != nil {
		return nil, fmt.Errorf("zkdata: %w", err)
	}
	defer r.Close()
	return ReadSnapshot(l.counted(r), file.Path, l.o.Limits)
}

// complete makes the test by which ZooKeeper leaves out snapshots that a crash has cut short.
func complete(file File) (bool, error) {
	r, err := os.Open(file.Path)
	if err != nil {
		return false, fmt.Errorf("zkdata: %w", err)
	}
	defer r.Close()
	const shortest = 10
	if file.Bytes < shortest {
		return false, nil
	}
	if strings.HasSuffix(file.Path, ".gz") || strings.HasSuffix(file.Path, ".snappy") {
		return true, nil
	}
	end := make([]byte, 4+len(endPath))
	if _, err := r.ReadAt(end, file.Bytes-int64(len(end))); err != nil {
		return false, fmt.Errorf("zkdata: read %s: %w", file.Path, err)
	}
	return bytes.Equal(end, []byte{0, 0, 0, 1, '/'}), nil
}

// NeededLogs are the logs that Load reads if the newest snapshot is whole.
func (f *Files) NeededLogs() []File {
	if len(f.Snapshots) == 0 {
		return f.Logs
	}
	return logsFrom(f.Logs, f.Snapshots[0].Zxid+1)
}

// logsFrom are the logs that may have transactions from zxid on: the last one that begins before
// it, and those that follow.
func logsFrom(logs []File, zxid wire.Zxid) []File {
	first := 0
	for i, f := range logs {
		if f.Zxid <= zxid {
			first = i
		}
	}
	return logs[first:]
}

// log applies the transactions of one log; those up to after are in the snapshot.
func (l *loader) log(file File, s *State, after wire.Zxid) error {
	r, err := os.Open(file.Path)
	if err != nil {
		return fmt.Errorf("zkdata: %w", err)
	}
	defer r.Close()
	lr, err := NewLogReader(l.counted(r), file.Path)
	if err != nil {
		return err
	}
	l.report.Logs = append(l.report.Logs, file)
	backwards := false
	for {
		t, err := lr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if l.report.Txns == 0 && t.Zxid <= after {
			continue
		}
		if t.Zxid < s.Zxid && !backwards {
			backwards = true
			l.report.notice("%s: the transaction with zxid %v follows %v; it is applied, as ZooKeeper does", file.Path,
				t.Zxid, s.Zxid)
		}
		if t.Op == wire.OpCheck {
			l.report.notice("%s: zxid %v is a check of its own, which a faulty release wrote; it has no effect",
				file.Path, t.Zxid)
		}
		s.Apply(t)
		l.report.Txns++
		if l.o.EachTxn != nil {
			l.o.EachTxn(t)
		}
	}
	switch torn := lr.Torn(); torn {
	case "":
	case tornHeader:
		l.report.notice("%s: %s; nothing is missing for it, though ZooKeeper itself would not start", file.Path, torn)
	default:
		l.report.notice("%s: %s, and nothing follows it; a crash leaves that of a transaction that was not "+
			"acknowledged, and it is left "+
			"out, as ZooKeeper does. After a clean stop it is damage", file.Path, torn)
	}
	return nil
}

// progressStep is the number of bytes between calls of Options.Progress.
const progressStep = 1 << 20

// counted is r, with a call of Progress now and then.
func (l *loader) counted(r io.Reader) io.Reader {
	if l.o.Progress == nil {
		return r
	}
	return readerFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		before := l.read
		if l.read += int64(n); l.read/progressStep != before/progressStep {
			l.o.Progress(l.read)
		}
		return n, err
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
