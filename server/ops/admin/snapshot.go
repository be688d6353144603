package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"lockkeeper/server/ops"
	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

const (
	snapshotName = "snapshot"
	restoreName  = "restore"
	binaryType   = "application/octet-stream"

	// transferWait bounds the pauses of a transfer, and transferRate is its least rate in bytes per
	// second.
	transferWait = 20 * time.Second
	transferRate = 64 << 10
	// snapshotWait is how long a snapshot waits for the proof that it has everything.
	snapshotWait = 5 * time.Second
)

// limiter lets one operation run at a time, and none for an interval after one that has succeeded.
type limiter struct {
	mu   sync.Mutex
	busy bool
	done time.Time
}

func (l *limiter) begin(interval time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy || !l.done.IsZero() && time.Since(l.done) < interval {
		return false
	}
	l.busy = true
	return true
}

func (l *limiter) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy = false; err == nil {
		l.done = time.Now()
	}
}

// begin answers a request for a transfer that may not begin.
func (s *Server) begin(w http.ResponseWriter, r *http.Request, name, method string, off bool, l *limiter) bool {
	switch {
	case r.Method != method:
		w.Header().Set("Allow", method)
		w.WriteHeader(http.StatusMethodNotAllowed)
	case off:
		s.fail(w, http.StatusServiceUnavailable, name, "admin."+name+".enabled=false: the command is disabled")
	case !s.allowed(w, r, name):
	case !s.serving():
		s.fail(w, http.StatusServiceUnavailable, name, notServing)
	case !l.begin(s.cfg.HTTP.SnapshotInterval):
		s.fail(w, http.StatusTooManyRequests, name, "another one is under way, or was less than "+
			"admin.rateLimiterIntervalInMS ago")
	default:
		return true
	}
	return false
}

// serveSnapshot sends the state. Its length is known beforehand, because the state is written
// twice, the first time to nowhere: so there is no file, and a client that is cut off knows it.
func (s *Server) serveSnapshot(w http.ResponseWriter, r *http.Request) {
	if !s.begin(w, r, snapshotName, http.MethodGet, s.cfg.HTTP.NoSnapshotCommand, &s.snapshots) {
		return
	}
	err := s.sendSnapshot(w, r)
	s.snapshots.end(err)
	s.audit(r, snapshotName, err)
}

var errNoLeader = errors.New("this member has no leader, so it cannot know that its state is complete")

func (s *Server) sendSnapshot(w http.ResponseWriter, r *http.Request) error {
	if streaming, err := strconv.ParseBool(r.URL.Query().Get("streaming")); err == nil && !streaming {
		if _, err := s.Replica().TakeSnapshot(r.Context()); err != nil {
			s.fail(w, http.StatusInternalServerError, snapshotName, err.Error())
			return err
		}
		zxid, _ := s.Replica().LastSnapshot()
		w.Header().Set("last_zxid", ops.Hex(zxid))
		s.answer(w, http.StatusOK, snapshotName, nil)
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), snapshotWait)
	defer cancel()
	if s.Sessions().Sync(ctx) != nil {
		s.fail(w, http.StatusServiceUnavailable, snapshotName, errNoLeader.Error())
		return errNoLeader
	}
	snap := s.Replica().Freeze()
	defer snap.Release()
	size, err := snap.WriteTo(io.Discard)
	if err != nil {
		s.fail(w, http.StatusInternalServerError, snapshotName, err.Error())
		return err
	}
	h := w.Header()
	h.Set("Content-Type", binaryType)
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	h.Set("Cache-Control", "no-store")
	h.Set("last_zxid", ops.Hex(snap.Zxid()))
	h.Set("snapshot_size", strconv.FormatInt(size, 10))
	w.WriteHeader(http.StatusOK)
	p := pace{start: time.Now(), set: http.NewResponseController(w).SetWriteDeadline}
	_, err = snap.WriteTo(writerFunc(func(b []byte) (int, error) {
		p.next(len(b))
		return w.Write(b)
	}))
	return err
}

type writerFunc func([]byte) (int, error)

// Write implements io.Writer.
func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// pace ends a transfer if the other end is too slow.
type pace struct {
	start time.Time
	bytes int64
	set   func(time.Time) error // sets the deadline
}

// next allows n more bytes.
func (p *pace) next(n int) {
	p.bytes += int64(n)
	until := time.Now().Add(transferWait)
	if slow := p.start.Add(2*transferWait + time.Duration(p.bytes/transferRate)*time.Second); slow.Before(until) {
		until = slow
	}
	_ = p.set(until)
}

// IsRestore reports whether a request is for the command restore, the only one with a body that is
// to be read.
func (s *Server) IsRestore(r *http.Request) bool {
	name := s.nameIn(r)
	return name == restoreName || name == "rest"
}

// serveRestore receives a snapshot into a file, verifies it, and then replaces the state by it. The
// answer has the zxid at which that happened. Status 504 says that this is not known.
func (s *Server) serveRestore(w http.ResponseWriter, r *http.Request) {
	if !s.begin(w, r, restoreName, http.MethodPost, s.cfg.HTTP.NoRestoreCommand, &s.restores) {
		return
	}
	zxid, status, err := s.restore(w, r)
	s.restores.end(err)
	s.audit(r, restoreName, err)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(transferWait))
	if err != nil {
		s.fail(w, status, restoreName, err.Error())
		return
	}
	s.answer(w, http.StatusOK, restoreName, Fields{{"last_zxid", int64(zxid)}})
}

func (s *Server) restore(w http.ResponseWriter, r *http.Request) (zxid wire.Zxid, status int, err error) {
	control := http.NewResponseController(w)
	if r.Header.Get("Content-Type") != binaryType {
		return 0, http.StatusUnsupportedMediaType, errors.New("the Content-Type must be " + binaryType)
	}
	spool, err := s.spool()
	if err != nil {
		return 0, http.StatusInternalServerError, err
	}
	defer spool.Close()
	if err := s.receive(w, r, spool); err != nil {
		_ = control.SetReadDeadline(time.Now()) // the rest is not read
		w.Header().Set("Connection", "close")
		return 0, statusOf(err), err
	}
	_ = control.SetReadDeadline(time.Time{})
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return 0, http.StatusInternalServerError, err
	}
	zxid, err = Restore(r.Context(), s, znode.NewSnapshotScanner(bufio.NewReaderSize(spool, 256<<10)))
	return zxid, statusOf(err), err
}

// ErrTooLarge says that the state of a snapshot is beyond maxNodes or maxDataBytes.
var ErrTooLarge = errors.New("the state of the snapshot is larger than this cluster allows (maxNodes, maxDataBytes)")

// restoreSlackBytes is the part of a snapshot beside the nodes: sessions and ACLs. A node has fewer
// bytes in a snapshot than it counts for maxDataBytes.
const restoreSlackBytes = 256 << 20

// Restore replaces the state of the whole cluster by a snapshot and returns the zxid at which that
// has happened: see session.Manager.Restore. It returns that function's errors, and ErrTooLarge.
func Restore(ctx context.Context, m ops.Member, sc *znode.SnapshotScanner) (wire.Zxid, error) {
	m.Config().Logger.Info("the state is to be replaced by a snapshot, as a super user has requested")
	return m.Sessions().Restore(ctx, sc, func(size znode.Size) error {
		l := m.Config().Limits
		if l.Nodes > 0 && size.Nodes > int64(l.Nodes) || l.DataBytes > 0 && size.Bytes > int64(l.DataBytes) {
			return fmt.Errorf("%w: %d nodes, %d bytes", ErrTooLarge, size.Nodes, size.Bytes)
		}
		return nil
	})
}

// spoolPattern names the files of snapshots that are being received, in dataDir.
const spoolPattern = "restore-*.tmp"

// spool returns an empty file for a snapshot that is being received. It is gone when it has been
// closed.
func (s *Server) spool() (spoolFile, error) {
	dir := s.cfg.Data.Dir
	if s.cfg.Machine.Stores != nil {
		dir = "" // the system's own for temporary files
	} else if left, err := filepath.Glob(filepath.Join(dir, spoolPattern)); err == nil {
		for _, file := range left { // by a process that has ended: there is one restore at a time
			_ = os.Remove(file)
		}
	}
	f, err := os.CreateTemp(dir, spoolPattern)
	return spoolFile{f}, err
}

type spoolFile struct{ *os.File }

// Close implements io.Closer. It removes the file.
func (f spoolFile) Close() error { return errors.Join(f.File.Close(), os.Remove(f.Name())) }

// ErrOtherCluster refuses the snapshot of another cluster.
var ErrOtherCluster = errors.New("admin: the snapshot is of another cluster")

// ofCluster is the parameter of a restore that names the snapshot's cluster, if it is another one.
const ofCluster = "cluster"

// admit refuses the snapshot of another cluster, unless the request names that cluster.
func (s *Server) admit(r *http.Request, info znode.SnapshotInfo) error {
	own := s.Replica().Cluster()
	if info.Cluster == 0 || info.Cluster == own || r.URL.Query().Get(ofCluster) == info.Cluster.String() {
		return nil
	}
	return fmt.Errorf("%w: of %v, and this is %v; name it (%s=%v) if it is to replace the state all the same",
		ErrOtherCluster,
		info.Cluster, own, ofCluster, info.Cluster)
}

// receive writes the body of a request to a file, if it is a snapshot that may be restored.
func (s *Server) receive(w http.ResponseWriter, r *http.Request, spool io.Writer) error {
	p := pace{start: time.Now(), set: http.NewResponseController(w).SetReadDeadline}
	body := readerFunc(func(b []byte) (int, error) {
		p.next(0)
		n, err := r.Body.Read(b)
		if p.bytes += int64(n); s.cfg.Limits.DataBytes > 0 &&
			p.bytes > int64(s.cfg.Limits.DataBytes)+restoreSlackBytes {
			return 0, ErrTooLarge
		}
		return n, err
	})
	out := bufio.NewWriterSize(spool, 256<<10)
	info, err := znode.ScanSnapshot(io.TeeReader(bufio.NewReaderSize(body, 64<<10), out))
	if err == nil {
		err = s.admit(r, info)
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, znode.ErrDamaged), errors.Is(err, znode.ErrNewer), errors.Is(err, session.ErrRestoreRefused):
		return http.StatusBadRequest
	case errors.Is(err, ErrTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, session.ErrRestoreBusy), errors.Is(err, ErrOtherCluster):
		return http.StatusConflict
	case errors.Is(err, session.ErrRestoreUnknown):
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}
