package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/quorum"
	"lockkeeper/quorum/store"
	"lockkeeper/server/datadir"
	"lockkeeper/server/zoocfg"
	"lockkeeper/wire"
	"lockkeeper/zkdata"
	"lockkeeper/znode"
)

// inspectedMost bounds each list of an Inspection: the largest nodes, the sessions with the most
// ephemeral nodes, the locks.
const inspectedMost = 10

// Inspection describes the data directory of a stopped server, or a snapshot.
type Inspection struct {
	// Of is the program that wrote the data: ZooKeeper or lockkeeper.
	Of   string `json:"of"`
	Path string `json:"path"`
	Zxid string `json:"zxid"`
	// Epoch is ZooKeeper's currentEpoch, or the term of the last entry of the log; AcceptedEpoch is
	// ZooKeeper's, or the newest term that the member has voted in or followed. -1: the files do
	// not say.
	Epoch         int64 `json:"epoch"`
	AcceptedEpoch int64 `json:"acceptedEpoch"`
	// Snapshot is the one that counts; Transactions are the log's behind it.
	Snapshot     string `json:"snapshot,omitempty"`
	Transactions int    `json:"transactions"`
	// Notices are irregularities that do not prevent reading.
	Notices    []string           `json:"notices,omitempty"`
	Nodes      int                `json:"nodes"`
	Bytes      int64              `json:"bytes"` // of paths and data
	Ephemerals int                `json:"ephemerals"`
	Sessions   int                `json:"sessions"`
	Most       []InspectedSession `json:"sessionsWithTheMostEphemerals,omitempty"`
	Largest    []InspectedNode    `json:"largestNodes,omitempty"`
	Locks      int                `json:"locks"`
	Queues     []InspectedLock    `json:"longestQueues,omitempty"`
	// Import is the result of an import of these data.
	Import string `json:"import"`

	store *znode.Store
	owned map[wire.SessionID][]string // the paths of the ephemeral nodes
}

// InspectedSession is a session with the number of its ephemeral nodes.
type InspectedSession struct {
	ID         string `json:"id"`
	TimeoutMs  int32  `json:"timeoutMs"`
	Ephemerals int    `json:"ephemerals"`
}

// OwnedBy is a session with the paths of its ephemeral nodes, sorted.
type OwnedBy struct {
	ID         string   `json:"id"`
	TimeoutMs  int32    `json:"timeoutMs"`
	Ephemerals []string `json:"ephemerals"`
}

// WholeNode is all of a node that a client can see. Data are nil where the node has none.
type WholeNode struct {
	Path string     `json:"path"`
	Data []byte     `json:"data"`
	ACL  []wire.ACL `json:"acl"`
	Stat wire.Stat  `json:"stat"`
}

// InspectedNode is a node and the bytes of its data.
type InspectedNode struct {
	Path  string `json:"path"`
	Bytes int    `json:"bytes"`
}

// InspectedLock is a lock with its holders' sessions.
type InspectedLock struct {
	Path    string   `json:"path"`
	Holders []string `json:"holders"`
	Waiting int      `json:"waiting"`
}

// Inspect reads a data directory of ZooKeeper or of lockkeeper, or a snapshot of either. logDir is
// where the logs are, if that is another directory. A directory that has both kinds of data is
// lockkeeper's; its version-2 alone can be named. A member must not run on it. Errors name the
// file, damage its offset as well. progress, unless nil, is called as in ImportOptions.
//
// maxMemory bounds the memory, in bytes, of the state that is made of a snapshot of ZooKeeper,
// which may be compressed; 0 stands for maxMemory's default.
func Inspect(ctx context.Context, path, logDir string, maxMemory int64,
	progress func(bytes, all int64)) (*Inspection, error) {
	logDir = cmp.Or(logDir, path)
	maxMemory = cmp.Or(maxMemory, int64(zoocfg.Config{}.WithDefaults().MaxMemory))
	limits := zkdata.Limits{Memory: maxMemory}
	in := &Inspection{Path: path, Epoch: -1, AcceptedEpoch: -1}
	var zxid wire.Zxid // of the files
	st, err := os.Stat(path)
	switch {
	case err != nil:
	case !st.IsDir():
		err = in.readFile(limits)
	case datadir.Exists(filepath.Join(logDir, datadir.LogFile)):
		err = in.readOurs(ctx, logDir)
	case datadir.Exists(filepath.Join(path, datadir.LogFile)) ||
		datadir.Exists(filepath.Join(path, datadir.SnapshotsDir)):
		err = fmt.Errorf("%s has a part of a member's data: name its zoo.cfg, which has dataDir and dataLogDir", path)
	default:
		zxid, err = in.readZooKeepers(logDir, limits, progress)
	}
	if err != nil {
		return nil, fmt.Errorf("server: inspect: %w", err)
	}
	in.Zxid = max(zxid, in.store.Zxid()).String()
	in.count()
	return in, nil
}

// readFile reads a snapshot.
func (in *Inspection) readFile(limits zkdata.Limits) error {
	f, err := os.Open(in.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	name := filepath.Base(in.Path)
	in.Snapshot, in.Import = name, "nothing: it takes a directory"
	if in.store, err = znode.Restore(f); err == nil {
		in.Of = "lockkeeper"
		return nil
	}
	ours := err
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	state, err := zkdata.ReadSnapshot(f, in.Path, limits)
	if err != nil {
		return fmt.Errorf("neither a snapshot of lockkeeper (%w) nor one of ZooKeeper (%w)", ours, err)
	}
	in.Of = "ZooKeeper"
	if number, ok := strings.CutPrefix(name, "snapshot."); ok {
		number, _, _ = strings.Cut(number, ".")
		_, _ = fmt.Sscanf(number, "%x", &state.Zxid) // ZooKeeper has the zxid in the name only
	}
	state.RemoveExpiredSessions(true)
	in.store, err = state.Store(true)
	return err
}

func (in *Inspection) readOurs(ctx context.Context, logDir string) error {
	in.Of, in.Import = "lockkeeper", "nothing: there are data of lockkeeper"
	return whateverKind(in.Path, logDir, func(cfg *zoocfg.Config) error {
		last, err := readStopped(ctx, cfg)
		in.store, in.Notices = last.state, last.repaired
		in.Epoch, in.AcceptedEpoch = int64(last.term), int64(last.accepted)
		return err
	})
}

// whateverKind does something with the kind of log that the directories have.
func whateverKind(dir, logDir string, do func(cfg *zoocfg.Config) error) (err error) {
	for _, kind := range []store.LogKind{store.LogWAL, store.LogBolt} {
		cfg := zoocfg.Config{Data: zoocfg.Data{Dir: dir, LogDir: logDir, LogStore: kind}}.WithDefaults()
		if err = do(&cfg); !errors.Is(err, store.ErrLogKind) {
			return err
		}
	}
	return err
}

// readZooKeepers reads directories of ZooKeeper, and returns the zxid that they have come to.
func (in *Inspection) readZooKeepers(
	logDir string, limits zkdata.Limits, progress func(bytes, all int64),
) (wire.Zxid, error) {
	parent := func(dir string) string {
		if filepath.Base(dir) == datadir.ZooKeeperDir {
			return filepath.Dir(dir)
		}
		return dir
	}
	files, err := zkdata.List(parent(in.Path), parent(logDir))
	if err != nil {
		return 0, err
	}
	if files.Empty() {
		return 0, fmt.Errorf("%s has no data of ZooKeeper (%s/snapshot.*, log.*) and none of lockkeeper (%s)", in.Path,
			datadir.ZooKeeperDir, datadir.LogFile)
	}
	state, report, err := zkdata.Load(files, zkdata.Options{Extended: true, Progress: ofAll(files, progress),
		Limits: limits})
	if err != nil {
		return 0, err
	}
	in.Of, in.Epoch, in.AcceptedEpoch = "ZooKeeper", files.CurrentEpoch, files.AcceptedEpoch
	in.Snapshot, in.Transactions, in.Notices = filepath.Base(report.Snapshot.Path), report.Txns, report.Notices
	if len(files.Logs) == 0 {
		in.Notices = append(in.Notices, "there is no transaction log: if the server had a dataLogDir, name its "+
			"zoo.cfg, or what "+
			"the log has is missing here")
	}
	from := origin(files, state.Zxid)
	in.Import = fmt.Sprintf("all of it, as a snapshot of term %d and index %d", from.StateTerm, from.Index)
	in.store, err = state.Store(true)
	if err != nil {
		return 0, err
	}
	ttl := 0
	for n := range in.store.AllNodes() {
		if n.TTLMs != 0 {
			ttl++
		}
	}
	if ttl > 0 {
		in.Import += fmt.Sprintf("; for the %d TTL nodes zoo.cfg needs extendedTypesEnabled=true", ttl)
	}
	return state.Zxid, nil
}

// count adds up the nodes and sessions of the state.
func (in *Inspection) count() {
	in.owned = map[wire.SessionID][]string{}
	queues := map[string][]locknode.Contender{}
	isSemaphore := func(path string) bool { _, ok := in.store.Node(locknode.LeasesPath(path)); return ok }
	for n := range in.store.AllNodes() {
		in.Nodes++
		in.Bytes += int64(len(n.Path) + len(n.Data))
		in.Largest = append(in.Largest, InspectedNode{n.Path, len(n.Data)})
		if len(in.Largest) > 100*inspectedMost {
			in.cutLargest()
		}
		if n.Session == 0 {
			continue
		}
		in.Ephemerals++
		in.owned[n.Session] = append(in.owned[n.Session], n.Path)
		dir, name := locknode.Split(n.Path)
		lock, plain := locknode.Place(n.Path, isSemaphore)
		c := locknode.New(dir, name, int64(n.Session), time.UnixMilli(n.CtimeMs).UTC(), int64(n.Czxid), n.Data)
		if plain {
			c = locknode.Plain(c)
		}
		queues[lock] = append(queues[lock], c)
	}
	in.cutLargest()
	for info := range in.store.Sessions().All() {
		in.Sessions++
		in.Most = append(in.Most, InspectedSession{info.ID.String(), info.TimeoutMs, info.Ephemerals})
	}
	in.Most = most(in.Most, func(s InspectedSession) int { return s.Ephemerals },
		func(s InspectedSession) string { return s.ID })
	in.Locks = len(queues)
	for _, path := range slices.Sorted(maps.Keys(queues)) {
		lock := InspectedLock{Path: path, Holders: []string{}}
		contenders := queues[path]
		if len(contenders) > 1 || !contenders[0].Held {
			contenders = locknode.Resolve(locknode.Sorted(path, contenders))
		}
		for _, c := range contenders {
			if c.Held || c.MayHold {
				lock.Holders = append(lock.Holders, wire.SessionID(c.Session).String())
			} else {
				lock.Waiting++
			}
		}
		in.Queues = append(in.Queues, lock)
	}
	in.Queues = most(in.Queues, func(l InspectedLock) int { return l.Waiting },
		func(l InspectedLock) string { return l.Path })
}

func (in *Inspection) cutLargest() {
	in.Largest = most(in.Largest, func(n InspectedNode) int { return n.Bytes },
		func(n InspectedNode) string { return n.Path })
}

// most are the first inspectedMost of a list by a number, the greatest first.
func most[T any](list []T, number func(T) int, name func(T) string) []T {
	slices.SortFunc(list, func(a, b T) int {
		return cmp.Or(cmp.Compare(number(b), number(a)), cmp.Compare(name(a), name(b)))
	})
	return slices.Clip(list[:min(len(list), inspectedMost)])
}

// Paths are all paths of the state, sorted.
func (in *Inspection) Paths() []string {
	paths := make([]string, 0, in.Nodes)
	for n := range in.store.AllNodes() {
		paths = append(paths, n.Path)
	}
	slices.Sort(paths)
	return paths
}

// Owned are all sessions with their ephemeral nodes, by id.
func (in *Inspection) Owned() []OwnedBy {
	list := make([]OwnedBy, 0, in.Sessions)
	for info := range in.store.Sessions().All() {
		paths := append([]string{}, in.owned[info.ID]...)
		slices.Sort(paths)
		list = append(list, OwnedBy{info.ID.String(), info.TimeoutMs, paths})
	}
	slices.SortFunc(list, func(a, b OwnedBy) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Node is one node of the state; ok is false if there is none of that path.
func (in *Inspection) Node(path string) (n WholeNode, ok bool) {
	super := []znode.Identity{{Scheme: "super"}}
	data, stat, code := in.store.Get(path, super)
	if code != wire.CodeOK {
		return n, false
	}
	acl, _, _ := in.store.GetACL(path, super)
	return WholeNode{path, data, acl, stat}, true
}

// InspectLog calls each with a line for every transaction in a log file of ZooKeeper, or for every
// entry, and each command in it, of the log of lockkeeper in a directory.
func InspectLog(ctx context.Context, path string, each func(line string) error) error {
	st, err := os.Stat(path)
	switch {
	case err == nil && st.IsDir():
		err = inspectOurLog(ctx, path, each)
	case err == nil:
		err = inspectTheirLog(path, each)
	}
	if err != nil {
		return fmt.Errorf("server: inspect: %w", err)
	}
	return nil
}

func inspectTheirLog(path string, each func(line string) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := zkdata.NewLogReader(f, path)
	for err == nil {
		offset := r.Offset()
		var t *zkdata.Txn
		if t, err = r.Next(); err != nil {
			break
		}
		err = each(fmt.Sprintf("%d %v %s session=%v cxid=0x%x %v %s", offset, t.Zxid,
			atTime(t.TimeMs), t.Session, uint32(t.Cxid), t.Op, describe(t.Body)))
	}
	if err == io.EOF && r.Torn() != "" {
		return each(fmt.Sprintf("%d the last record is not whole, as a crash leaves it: %s", r.Offset(), r.Torn()))
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// inspectOurLog goes through the log in a directory. Commands without a path, those about sessions
// for example, are named by their kind.
func inspectOurLog(ctx context.Context, dir string, each func(line string) error) error {
	return whateverKind(dir, dir, func(cfg *zoocfg.Config) error {
		return withStopped(ctx, cfg, func(stores store.Stores) error {
			return quorum.EachEntry(stores, 1, func(index, term uint64, e *znode.Entry) error {
				if e == nil {
					return each(fmt.Sprintf("%d term=%d of Raft itself", index, term))
				}
				err := each(fmt.Sprintf("%d term=%d %s commands=%d", index, term, atTime(e.TimeMs), len(e.Commands)))
				for i := 0; i < len(e.Commands) && err == nil; i++ {
					err = each("  " + describeCommand(&e.Commands[i]))
				}
				return err
			})
		})
	})
}

// describeCommand formats a command without its data.
func describeCommand(c *znode.Command) string {
	describe := func(what string, sizeBytes int) string {
		return fmt.Sprintf("session=%v generation=%d seq=%d %s bytes=%d", c.Session, c.Generation, c.Seq, what,
			sizeBytes)
	}
	switch b := c.Body.(type) {
	case *znode.Request:
		return describe(b.Op.String(), len(b.Body)) + describeRequest(b)
	case *znode.Reap:
		return describe(c.Kind().String(), len(b.Path)) + fmt.Sprintf(" %q", b.Path)
	case *znode.RestoreStep:
		return describe(c.Kind().String(), len(b.Data))
	default:
		return describe(c.Kind().String(), 0)
	}
}

func describeRequest(q *znode.Request) string {
	body, _ := wire.DecodeBody(q.Op, q.Body)
	switch r := body.(type) {
	case *wire.CreateRequest:
		return fmt.Sprintf(" %q mode=%v", r.Path, r.Mode)
	case *wire.CreateTTLRequest:
		return fmt.Sprintf(" %q mode=%v ttlMs=%d", r.Path, r.Mode, r.TTL)
	case *wire.DeleteRequest:
		return fmt.Sprintf(" %q version=%d", r.Path, r.Version)
	case *wire.SetDataRequest:
		return fmt.Sprintf(" %q version=%d", r.Path, r.Version)
	case *wire.SetACLRequest:
		return fmt.Sprintf(" %q version=%d", r.Path, r.Version)
	case *wire.MultiRequest:
		return fmt.Sprintf(" parts=%d", len(r.Ops))
	}
	return ""
}

func atTime(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }

// describe formats a transaction without its data.
func describe(body any) string {
	switch b := body.(type) {
	case nil:
		return ""
	case *zkdata.Create:
		return fmt.Sprintf("%q ephemeral=%v bytes=%d", b.Path, b.Ephemeral, len(b.Data))
	case *zkdata.Delete:
		return fmt.Sprintf("%q", b.Path)
	case *zkdata.SetData:
		return fmt.Sprintf("%q version=%d bytes=%d", b.Path, b.Version, len(b.Data))
	case *zkdata.SetACL:
		return fmt.Sprintf("%q version=%d", b.Path, b.Version)
	case *zkdata.CreateSession:
		return fmt.Sprintf("timeoutMs=%d", b.TimeoutMs)
	case *zkdata.CloseSession:
		return fmt.Sprintf("paths=%d", len(b.Paths))
	case *zkdata.Failed:
		return b.Code.Error()
	case *zkdata.Multi:
		return fmt.Sprintf("parts=%d", len(b.Ops))
	}
	return fmt.Sprintf("%T", body)
}
