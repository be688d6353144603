package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"lockkeeper/recipes"
)

// Exit statuses of the commands about nodes, beside exitOK, exitFailed and exitUsage.
const (
	exitNoNode      = 3
	exitNodeExists  = 4
	exitBadVersion  = 5
	exitNoAuth      = 6
	exitNotEmpty    = 7
	exitUnreachable = 8 // nothing has been changed
	exitUnknown     = 9 // the answer to an update got lost
)

const (
	// nodesAhead bounds the requests of a recursive command in flight.
	nodesAhead = 64
	// maxNodeData is more data than the client library sends in a request.
	maxNodeData = 1536 << 10
	// usualNodeData is about the largest node that servers accept by default (jute.maxbuffer).
	usualNodeData = 1000_000
	// deleteRounds is how often a node is emptied that others fill meanwhile.
	deleteRounds = 5
)

// nodeCommand is ls, get, set, create, delete or stat.
type nodeCommand struct {
	clientFlags
	fs      *flag.FlagSet
	timeout time.Duration

	recursive, sync, sequential, container, parents, ephemeral, showACL bool

	version int
	ttl     time.Duration

	nodeACL  []zk.ACL // of create
	data     []byte   // of set and create
	c        *client
	conn     *zk.Conn
	out      *bufio.Writer
	unlisted int // nodes with children that may not be listed
}

func (n *nodeCommand) flags(fs *flag.FlagSet, e env) {
	n.clientFlags.flags(fs, e)
	n.fs = fs
	durationVar(fs, &n.timeout, "timeout", tryPatience,
		"`d` how long to try to reach the cluster, and to wait for each answer (default 10s, but not at all if nobody "+
			"listens at any address)")
	switch n.command {
	case "ls":
		fs.BoolVar(&n.recursive, "r", false, "PATH and everything below it, each with its whole path, parents first")
	case "delete":
		fs.BoolVar(&n.recursive, "r", false, "everything below PATH, too")
	case "create":
		fs.BoolVar(&n.parents, "p", false, "make the parents that are missing, too, with the same ACL and without data")
		fs.BoolVar(&n.sequential, "s", false, "let the server append a number of ten digits to PATH, which grows "+
			"with each node")
		fs.BoolVar(&n.container, "c", false, "a container: the server deletes it some time after its last "+
			"child is gone")
		fs.BoolVar(&n.ephemeral, "e", false, "keep the node for as long as this command runs: it ends with a "+
			"signal, or with "+
			"its session")
		durationVar(fs, &n.ttl, "ttl", 0, "`d` have the server delete the node when it has not been changed for that "+
			"long and "+
			"has no children (ZooKeeper needs zookeeper.extendedTypesEnabled=true)")
		n.aclFlag(fs)
	}
	switch n.command {
	case "ls", "get", "stat":
		fs.BoolVar(&n.sync, "sync", false, "read the state of the moment when the command began, or a later one: "+
			"without it a member may answer that is "+
			"a little behind")
	case "set", "delete":
		fs.IntVar(&n.version, "version", -1, "`n` only if the node has this version, which stat shows (default: any)")
	}
	if n.command == "stat" {
		fs.BoolVar(&n.showACL, "acl", false, "show the ACL, too")
	}
}

func (n *nodeCommand) run(e env, args []string) error {
	path, err := n.check(args)
	if err != nil {
		return usageError{err}
	}
	n.out = bufio.NewWriter(e.stdout)
	err, sig := untilSignal(e, time.Second, func(ctx context.Context) error {
		return n.connected(ctx, path)
	})
	if sig != nil && !(n.ephemeral && err == nil) {
		return signalStatus(sig)
	}
	if ferr := n.out.Flush(); err == nil {
		err = ferr
	}
	if err == nil {
		return nil
	}
	var failure *nodeError
	if !errors.As(err, &failure) {
		return n.fail(exitFailed, err)
	}
	n.say("failed", failure.Error(), "error", failure.name, "path", failure.path)
	return failure.status
}

// check checks the command line, and reads the data that it has.
func (n *nodeCommand) check(args []string) (path string, err error) {
	if err := n.clientFlags.check(); err != nil {
		return "", err
	}
	if len(args) == 0 {
		return "", errors.New("a path is needed, such as /locks")
	}
	path = args[0]
	trailing := path != "/" && strings.HasSuffix(path, "/") && !n.sequential
	switch {
	case !strings.HasPrefix(path, "/") || trailing || strings.Contains(path, "//"):
		return "", fmt.Errorf("%q is not the path of a node: it begins with / and does not end with one", path)
	case n.command == "set" && len(args) < 2:
		return "", errors.New("the new data is missing; - reads it from standard input")
	case n.command == "delete" && (path == "/" || path == "/zookeeper"):
		return "", fmt.Errorf("%s cannot be deleted", path)
	case n.recursive && n.version != -1 && n.command == "delete":
		return "", errors.New("-version is about one node, -r about many")
	case n.ephemeral && (n.container || n.ttl != 0), n.container && (n.ttl != 0 || n.sequential):
		return "", errors.New("-e, -c and -ttl are different kinds of nodes, and a container has no number (-s)")
	case given(n.fs, "ttl") && n.ttl < time.Millisecond:
		return "", errors.New("-ttl: must be at least 1ms")
	}
	if n.command == "create" {
		if n.nodeACL, err = n.acls(); err != nil {
			return "", err
		}
	}
	if len(args) < 2 {
		return path, nil
	}
	n.data = []byte(args[1])
	if args[1] == "-" {
		if n.data, err = io.ReadAll(io.LimitReader(stdin, maxNodeData+1)); err != nil {
			return "", fmt.Errorf("standard input: %w", err)
		}
	}
	if len(n.data) > maxNodeData {
		return "", fmt.Errorf("the data is longer than %d bytes; servers take less than 1 MB unless jute.maxbuffer "+
			"says otherwise",
			maxNodeData)
	}
	return path, nil
}

// stdin is where - has the data from.
var stdin io.Reader = os.Stdin

// parseACL reads scheme:id:perms,... as ZooKeeper's command line client does. An id may have
// colons, and commas unless an entry of its own follows them.
func parseACL(text string) (list []zk.ACL, err error) {
	for part := range strings.SplitSeq(text, ",") {
		scheme, rest, found := strings.Cut(part, ":")
		at := strings.LastIndexByte(rest, ':')
		if !found || scheme == "" || at < 0 || at == len(rest)-1 {
			return nil, fmt.Errorf("-acl: %q is not scheme:id:perms", part)
		}
		acl := zk.ACL{Scheme: scheme, ID: rest[:at]}
		for _, perm := range rest[at+1:] {
			bit := strings.IndexRune(aclLetters, perm)
			if bit < 0 {
				return nil, fmt.Errorf("-acl: %q: there is no permission %q; there are c, d, r, w and a", part, perm)
			}
			acl.Perms |= 1 << bit
		}
		list = append(list, acl)
	}
	return list, nil
}

// aclLetters are the permissions in the order of their bits.
const aclLetters = "rwcda"

func aclText(acl zk.ACL) string {
	perms := ""
	for _, letter := range "cdrwa" {
		if acl.Perms&(1<<strings.IndexRune(aclLetters, letter)) != 0 {
			perms += string(letter)
		}
	}
	return acl.Scheme + ":" + acl.ID + ":" + perms
}

// nodeError is why a command about a node has failed.
type nodeError struct {
	status exitStatus
	name   string // of the error, for programs: as ZooKeeper calls it, or Unreachable or Unknown
	path   string
	text   string
}

// Error implements error.
func (e *nodeError) Error() string { return e.text }

// hasStatus reports whether the command would end with that status.
func hasStatus(err error, status exitStatus) bool {
	var failure *nodeError
	return errors.As(err, &failure) && failure.status == status
}

// explain makes a nodeError of the error of a request; update says that the request changes
// something, so that it matters whether it has been sent.
func (n *nodeCommand) explain(err error, path string, update bool) error {
	failure := func(status exitStatus, name, format string, args ...any) error {
		return &nodeError{status, name, path, fmt.Sprintf(format, args...)}
	}
	if isLost(err) {
		err = cmp.Or(n.c.loginRequired(), err)
	}
	switch {
	case errors.Is(err, zk.ErrNoNode) && n.command == "create":
		return failure(exitNoNode, "NoNode", "the parent of %s does not exist (-p makes it)", path)
	case errors.Is(err, zk.ErrNoNode):
		return failure(exitNoNode, "NoNode", "%s does not exist", path)
	case errors.Is(err, zk.ErrNodeExists):
		return failure(exitNodeExists, "NodeExists", "%s exists already", path)
	case errors.Is(err, zk.ErrBadVersion):
		return failure(exitBadVersion, "BadVersion", "%s does not have version %d any more, or not yet", path,
			n.version)
	case errors.Is(err, zk.ErrNoAuth):
		return failure(exitNoAuth, "NoAuth", "the ACL does not allow this at %s: -auth or -auth-file says who you are",
			path)
	case errors.Is(err, zk.ErrAuthFailed):
		return failure(exitNoAuth, "AuthFailed", "the server refuses the identity that -auth, -auth-file or $%s names",
			authVariable)
	case errors.Is(err, recipes.ErrLoginRequired):
		return failure(exitNoAuth, "SessionClosedRequireSaslAuth", "%v", loginRequired())
	case errors.Is(err, zk.ErrNotEmpty) && n.recursive:
		return failure(exitNotEmpty, "NotEmpty", "%s gets new children all the time", path)
	case errors.Is(err, zk.ErrNotEmpty):
		return failure(exitNotEmpty, "NotEmpty", "%s has children (-r deletes them, too)", path)
	case errors.Is(err, zk.ErrBadArguments) && len(n.data) > usualNodeData:
		return failure(exitFailed, "BadArguments", "the server refuses the request: %d bytes of data are more than "+
			"its jute.maxbuffer "+
			"allows (1 MB with the name and the ACL, if it is not set), or than a limit of its own", len(n.data))
	case errors.Is(err, zk.ErrNoServer), !update && isLost(err):
		return failure(exitUnreachable, "Unreachable", "%s", n.c.unreachable())
	case isLost(err):
		cause := err.Error()
		if len(n.data) > usualNodeData {
			cause += "; a server closes the connection for data that are too large, see jute.maxbuffer"
		}
		return failure(exitUnknown, "Unknown",
			"the connection was lost, and with it the answer (%s): 'lockkeeper stat %s' shows what came of it", cause,
			path)
	case strings.HasSuffix(err.Error(), " -6"): // the library has no error for it
		return failure(exitFailed, "Unimplemented", "the server does not know this kind of node; for -ttl it needs "+
			"extendedTypesEnabled=true, in ZooKeeper as a system property")
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		return failure(exitFailed, "NoChildrenForEphemerals", "the parent of %s is ephemeral and may not have children",
			path)
	case errors.Is(err, zk.ErrInvalidACL):
		return failure(exitFailed, "InvalidACL", "the server does not take this ACL (auth::perms needs -auth)")
	case errors.Is(err, zk.ErrInvalidPath):
		return failure(exitUsage, "BadArguments", "%q is not the path of a node", path)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// isLost reports whether an answer got lost, so that the outcome is unknown.
func isLost(err error) bool {
	var net interface{ Timeout() bool }
	return errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrSessionExpired) ||
		errors.Is(err, zk.ErrClosing) ||
		errors.Is(err, zk.ErrSessionMoved) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &net)
}

// connected connects and runs the command.
func (n *nodeCommand) connected(ctx context.Context, path string) (err error) {
	if n.c, err = n.connect(recipes.Config{}); err != nil { // no name could be resolved
		return &nodeError{exitUnreachable, "Unreachable", path, err.Error()}
	}
	defer n.c.Close()
	n.conn = n.c.Conn().(*zk.Conn)
	first, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	if err := n.reach(first, n.c, given(n.fs, "timeout")); errors.Is(err, zk.ErrAuthFailed) {
		return n.explain(err, path, false)
	} else if err != nil {
		return &nodeError{exitUnreachable, "Unreachable", path, err.Error()}
	}
	if n.sync {
		if err := n.read(ctx, path, func() error { _, err := n.conn.Sync(path); return err }); err != nil {
			return err
		}
	}
	switch n.command {
	case "ls":
		return n.list(ctx, path)
	case "get":
		return n.get(ctx, path)
	case "set":
		return n.set(ctx, path)
	case "create":
		return n.create(ctx, path)
	case "delete":
		return n.delete(ctx, path)
	}
	return n.stat(ctx, path)
}

// call does one request, again and again while it certainly has not been carried out.
func (n *nodeCommand) call(ctx context.Context, again func(error) bool, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	for {
		err := within(ctx, f)
		if err == nil || !again(err) || ctx.Err() != nil {
			return err
		}
	}
}

func (n *nodeCommand) read(ctx context.Context, path string, f func() error) error {
	err := n.call(ctx, func(err error) bool {
		lost := errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrSessionExpired)
		return errors.Is(err, zk.ErrNoServer) || lost && n.c.loginRequired() == nil
	}, f)
	if err != nil {
		return n.explain(err, path, false)
	}
	return nil
}

func (n *nodeCommand) update(ctx context.Context, path string, f func() error) error {
	if err := n.call(ctx, func(err error) bool { return errors.Is(err, zk.ErrNoServer) }, f); err != nil {
		return n.explain(err, path, true)
	}
	return nil
}

// nodeStat is a Stat for programs. Numbers that are too large for many readers of JSON are texts,
// as ZooKeeper's tools write them.
type nodeStat struct {
	Czxid          string    `json:"czxid"`
	Ctime          time.Time `json:"ctime"`
	Mzxid          string    `json:"mzxid"`
	Mtime          time.Time `json:"mtime"`
	Pzxid          string    `json:"pzxid"`
	Version        int32     `json:"version"`
	Cversion       int32     `json:"cversion"`
	Aversion       int32     `json:"aversion"`
	EphemeralOwner string    `json:"ephemeralOwner"`
	DataLength     int32     `json:"dataLength"`
	NumChildren    int32     `json:"numChildren"`
}

func newNodeStat(s *zk.Stat) *nodeStat {
	at := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	return &nodeStat{
		Czxid: sessionText(s.Czxid), Ctime: at(s.Ctime), Mzxid: sessionText(s.Mzxid), Mtime: at(s.Mtime),
		Pzxid:   sessionText(s.Pzxid),
		Version: s.Version, Cversion: s.Cversion, Aversion: s.Aversion, EphemeralOwner: sessionText(s.EphemeralOwner),
		DataLength: s.DataLength, NumChildren: s.NumChildren,
	}
}

// text is the stat with the names that ZooKeeper's command line client gives the fields.
func (s *nodeStat) text() string {
	const form = "2006-01-02T15:04:05.000Z07:00"
	return fmt.Sprintf("cZxid = %s\nctime = %s\nmZxid = %s\nmtime = %s\npZxid = %s\ncversion = %d\ndataVersion = %d\n"+
		"aclVersion = %d\nephemeralOwner = %s\ndataLength = %d\nnumChildren = %d\n", s.Czxid, s.Ctime.Format(form),
		s.Mzxid,
		s.Mtime.Format(form), s.Pzxid, s.Cversion, s.Version, s.Aversion, s.EphemeralOwner, s.DataLength, s.NumChildren)
}

// nodeRecord is a node in the output of -json.
type nodeRecord struct {
	Path    string    `json:"path"`
	Data    *[]byte   `json:"data,omitempty"` // in base64
	Text    *string   `json:"text,omitempty"` // the data, if it is UTF-8
	Stat    *nodeStat `json:"stat,omitempty"`
	ACL     []string  `json:"acl,omitempty"`
	Deleted int       `json:"deleted,omitempty"` // number of nodes
}

func (n *nodeCommand) print(r nodeRecord) error { return json.NewEncoder(n.out).Encode(r) }

func (n *nodeCommand) get(ctx context.Context, path string) error {
	var data []byte
	var stat *zk.Stat
	if err := n.read(ctx, path, func() (err error) { data, stat, err = n.conn.Get(path); return err }); err != nil {
		return err
	}
	if !n.json {
		_, err := n.out.Write(data)
		return err
	}
	if data == nil {
		data = []byte{}
	}
	r := nodeRecord{Path: path, Data: &data, Stat: newNodeStat(stat)}
	if utf8.Valid(data) {
		text := string(data)
		r.Text = &text
	}
	return n.print(r)
}

func (n *nodeCommand) stat(ctx context.Context, path string) error {
	stat, err := n.exists(ctx, path)
	if err != nil {
		return err
	}
	r := nodeRecord{Path: path, Stat: newNodeStat(stat)}
	if n.showACL {
		var acls []zk.ACL
		if err := n.read(ctx, path, func() (err error) { acls, _, err = n.conn.GetACL(path); return err }); err != nil {
			return err
		}
		for _, acl := range acls {
			r.ACL = append(r.ACL, aclText(acl))
		}
	}
	if n.json {
		return n.print(r)
	}
	text := r.Stat.text()
	for _, acl := range r.ACL {
		text += "acl = " + plain(acl) + "\n"
	}
	_, err = n.out.WriteString(text)
	return err
}

func (n *nodeCommand) exists(ctx context.Context, path string) (stat *zk.Stat, err error) {
	err = n.read(ctx, path, func() error {
		found, s, err := n.conn.Exists(path)
		if err == nil && !found {
			return zk.ErrNoNode
		}
		stat = s
		return err
	})
	if err != nil {
		return nil, err
	}
	return stat, nil
}

func (n *nodeCommand) set(ctx context.Context, path string) error {
	var stat *zk.Stat
	err := n.update(ctx, path, func() (err error) {
		stat,
			err = n.conn.Set(path, n.data, int32(n.version))
		return err
	})
	if err == nil && n.json {
		return n.print(nodeRecord{Path: path, Stat: newNodeStat(stat)})
	}
	return err
}

func (n *nodeCommand) create(ctx context.Context, path string) error {
	var made string
	for {
		err := n.update(ctx, path, func() (err error) { made, err = n.makeNode(path); return err })
		if err == nil {
			break
		}
		if !n.parents || !hasStatus(err, exitNoNode) {
			return err
		}
		if err := n.makeParents(ctx, path); err != nil {
			return err
		}
	}
	if n.json {
		if err := n.print(nodeRecord{Path: made}); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(n.out, made)
	}
	if n.ephemeral {
		return n.hold(ctx, made)
	}
	return nil
}

func (n *nodeCommand) makeNode(path string) (string, error) {
	var flags int32
	if n.sequential {
		flags = zk.FlagSequence
	}
	switch {
	case n.container:
		return n.conn.CreateContainer(path, n.data, zk.FlagContainer, n.nodeACL)
	case n.ttl != 0 && n.sequential:
		return n.conn.CreateTTL(path, n.data, zk.FlagPersistentSequentialWithTTL, n.nodeACL, n.ttl)
	case n.ttl != 0:
		return n.conn.CreateTTL(path, n.data, zk.FlagTTL, n.nodeACL, n.ttl)
	case n.ephemeral:
		flags |= zk.FlagEphemeral
	}
	return n.conn.Create(path, n.data, flags, n.nodeACL)
}

// makeParents makes the nodes above path that are missing.
func (n *nodeCommand) makeParents(ctx context.Context, path string) error {
	for i := 1; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		parent := path[:i]
		err := n.update(ctx, parent, func() error {
			_, err := n.conn.Create(parent, nil, zk.FlagPersistent, n.nodeACL)
			if errors.Is(err, zk.ErrNodeExists) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// hold waits until the node is gone, or a signal comes.
func (n *nodeCommand) hold(ctx context.Context, path string) error {
	if err := n.out.Flush(); err != nil {
		return err
	}
	session := n.conn.SessionID()
	for {
		found, stat, changed, err := n.conn.ExistsW(path)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && isLost(err) || errors.Is(err, zk.ErrNoServer):
			continue // ExistsW waits for a connection
		case err != nil:
			return n.explain(err, path, false)
		case !found || stat.EphemeralOwner != session:
			return &nodeError{exitFailed, "SessionExpired", path, path + " is gone: it was deleted, or the session " +
				"has expired"}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil // closing the session deletes the node
		}
	}
}

// list is ls.
func (n *nodeCommand) list(ctx context.Context, path string) error {
	if n.recursive {
		stat, err := n.exists(ctx, path)
		if err != nil {
			return err
		}
		if err := n.listBelow(ctx, path, stat); err != nil || n.unlisted == 0 {
			return err
		}
		return &nodeError{exitNoAuth, "NoAuth", path,
			fmt.Sprintf("what is below %d nodes may not be listed", n.unlisted)}
	}
	names, err := n.children(ctx, path)
	if err != nil {
		return err
	}
	if !n.json {
		for _, name := range names {
			fmt.Fprintln(n.out, name)
		}
		return nil
	}
	return n.eachStat(ctx, path, names, n.listed)
}

func (n *nodeCommand) listed(_ context.Context, path string, stat *zk.Stat) error {
	if n.json {
		r := nodeRecord{Path: path}
		if stat != nil {
			r.Stat = newNodeStat(stat)
		}
		return n.print(r)
	}
	_, err := fmt.Fprintln(n.out, path)
	return err
}

// listBelow lists a node and all below it. It has in memory the names of the children of each node
// on the way to where it is, and the Stats of nodesAhead of them.
func (n *nodeCommand) listBelow(ctx context.Context, path string, stat *zk.Stat) error {
	if err := n.listed(ctx, path, stat); err != nil || stat.NumChildren == 0 {
		return err
	}
	names, err := n.children(ctx, path)
	if err = n.passable(err); err != nil {
		return err
	}
	return n.eachStat(ctx, path, names, n.listBelow)
}

// passable returns nil for an error that does not stop a walk: the node has gone meanwhile, or may
// not be listed.
func (n *nodeCommand) passable(err error) error {
	switch {
	case hasStatus(err, exitNoNode):
		return nil
	case hasStatus(err, exitNoAuth) && n.command == "ls":
		n.say("unreadable", err.Error(), "error", "NoAuth")
		n.unlisted++
		return nil
	}
	return err
}

func (n *nodeCommand) children(ctx context.Context, path string) (names []string, err error) {
	err = n.read(ctx, path, func() (err error) { names, _, err = n.conn.Children(path); return err })
	slices.Sort(names)
	return names, err
}

// eachStat calls f for each child of a node that exists, in order. The Stats of the next ones are
// requested meanwhile.
func (n *nodeCommand) eachStat(ctx context.Context, parent string, names []string,
	f func(ctx context.Context, path string, stat *zk.Stat) error) error {
	type answer struct {
		stat *zk.Stat
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var ahead []chan answer
	for i, next := 0, 0; i < len(names); i++ {
		for ; next < min(len(names), i+nodesAhead); next++ {
			ch, path := make(chan answer, 1), childPath(parent, names[next])
			ahead = append(ahead, ch)
			go func() {
				stat, err := n.exists(ctx, path)
				ch <- answer{stat, err}
			}()
		}
		a := <-ahead[0]
		ahead = ahead[1:]
		err := n.passable(a.err)
		switch {
		case err != nil:
			return err
		case a.err == nil:
			err = f(ctx, childPath(parent, names[i]), a.stat)
		case hasStatus(a.err, exitNoAuth):
			err = n.listed(ctx, childPath(parent, names[i]), nil) // its parent has told its name
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func childPath(parent, name string) string { return strings.TrimSuffix(parent, "/") + "/" + name }

// delete deletes a node, with -r after its descendants.
func (n *nodeCommand) delete(ctx context.Context, path string) (err error) {
	deleted := 1
	if n.recursive {
		deleted, err = n.deleteBelow(ctx, path)
	} else {
		err = n.deleteOne(ctx, path)
	}
	if err == nil && n.json {
		return n.print(nodeRecord{Path: path, Deleted: deleted})
	}
	return err
}

func (n *nodeCommand) deleteOne(ctx context.Context, path string) error {
	return n.update(ctx, path, func() error { return n.conn.Delete(path, int32(n.version)) })
}

// deleteBelow deletes a node and all below it, and counts them. It has in memory the names of the
// children of each node on the way to where it is. A child that another client has deleted before
// is no error.
func (n *nodeCommand) deleteBelow(ctx context.Context, path string) (deleted int, err error) {
	for round := 0; ; round++ {
		if err = n.deleteOne(ctx, path); err == nil {
			return deleted + 1, nil
		}
		if !hasStatus(err, exitNotEmpty) || round == deleteRounds {
			return deleted, err
		}
		names, err := n.children(ctx, path)
		if err = n.passable(err); err != nil {
			return deleted, err
		}
		var parents []string // children with children
		for some := range slices.Chunk(names, nodesAhead) {
			errs := make([]error, len(some))
			var wg sync.WaitGroup
			for i, name := range some {
				wg.Go(func() { errs[i] = n.deleteOne(ctx, childPath(path, name)) })
			}
			wg.Wait()
			for i, err := range errs {
				switch {
				case err == nil:
					deleted++
				case hasStatus(err, exitNotEmpty):
					parents = append(parents, some[i])
				case n.passable(err) != nil:
					return deleted, err
				}
			}
		}
		for _, name := range parents {
			some, err := n.deleteBelow(ctx, childPath(path, name))
			deleted += some
			if n.passable(err) != nil {
				return deleted, err
			}
		}
	}
}
