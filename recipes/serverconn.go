package recipes

import (
	"bytes"
	"crypto/md5"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/recipes/internal/sessionfile"
)

// serverConn is a connection to one server. It stands between go-zookeeper and the network for the
// things that go-zookeeper does not do:
//
//   - The handshake has a deadline. go-zookeeper would wait for ten times its receive timeout, and
//     the session would be over long before.
//   - The session timeout that was granted is read from the server's answer.
//   - The identities of the program are shown right behind the handshake, before any request, on
//     every connection. go-zookeeper's AddAuth is a request like others, and is not repeated if the
//     connection breaks before its reply.
//   - The TreeWatch, which go-zookeeper does not know, is set on every connection.
//   - A server that does not answer anything for a third of the session timeout after a request was
//     written is given up, while there is time to have a grant confirmed by another one.
//     go-zookeeper waits for two thirds, as is done here where all servers are slow: see
//     hosts.replyPatience. A reconfig may take longer, while pings are answered: the next ping
//     tells.
//   - When reading fails, writing does, so that go-zookeeper gets on.
//   - With a session file, the first handshake attaches to the session in it: see greet.
//
// go-zookeeper reads from a connection in one goroutine at a time, and writes in one at a time. The
// goroutine that does the handshake is the only one until it is done.
type serverConn struct {
	net.Conn
	d       *dialer
	address string

	greeted bool   // the handshake has been written; writer only
	offers  bool   // it offers the session of the previous process; reader after the handshake
	begun   bool   // the handshake's answer has been awaited; reader only
	pending []byte // the rest of it for go-zookeeper; reader only

	mu          sync.Mutex
	established bool      // the handshake is over
	readBy      time.Time // go-zookeeper's deadline for reading; zero: none
	replyBy     time.Time // when something has to have arrived; zero: nothing is awaited
	// an answer before it shows that writes are answered soon; zero: no write is awaited
	soonBy  time.Time
	arrived uint64 // number of reads that brought something
}

func newServerConn(conn net.Conn, d *dialer, address string, deadline time.Time) (net.Conn, error) {
	if err := conn.SetDeadline(deadline); err != nil {
		conn.Close()
		return nil, err
	}
	return &serverConn{Conn: conn, d: d, address: address}, nil
}

// Read returns the answer to the handshake when all that belongs to the handshake is done, and from
// then on the bytes that arrive.
func (c *serverConn) Read(b []byte) (int, error) {
	if !c.begun {
		c.begun = true
		answer, err := c.handshake()
		if err != nil {
			return 0, c.fail(err)
		}
		c.pending = answer
	}
	if len(c.pending) > 0 {
		n := copy(b, c.pending)
		c.pending = c.pending[n:]
		return n, nil
	}
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.signOfLife()
	}
	if err == nil && requiresLogin(b[:n]) {
		return 0, c.fail(c.end(fmt.Errorf("%s: %w", c.address, ErrLoginRequired)))
	}
	if err != nil {
		if isTimeout(err) && c.awaitsReply() {
			c.d.hosts.isSilent()
		}
		err = c.fail(err)
	}
	return n, err
}

// requiresLogin reports whether a frame's body, which go-zookeeper reads at once, is the answer to
// a request that had to follow a login. go-zookeeper knows no such error.
//
//	xid(4) zxid(8) error(4)
func requiresLogin(body []byte) bool {
	const size, sessionClosedRequireSASLAuth = 16, -124
	return len(body) == size && int32(binary.BigEndian.Uint32(body[12:])) == sessionClosedRequireSASLAuth
}

// end ends the Session, and returns err: no server would do otherwise.
func (c *serverConn) end(err error) error {
	select {
	case c.d.refused <- err:
	default: // one is enough
	}
	return err
}

// Write writes, and from then on waits for something to arrive.
func (c *serverConn) Write(b []byte) (int, error) {
	if c.d.left.Load() {
		return 0, c.fail(net.ErrClosed)
	}
	if !c.greeted {
		c.greeted = true
		b = c.greet(b)
	}
	c.mu.Lock()
	arrived := c.arrived
	c.mu.Unlock()
	n, err := c.Conn.Write(b)
	if err != nil {
		return n, c.fail(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Bytes that arrived meanwhile may be the reply. The next request, which is a ping after at
	// most a third of the timeout, tells.
	if c.replyBy.IsZero() && c.arrived == arrived && operation(b) != opReconfig {
		now, timeout := time.Now(), c.d.granted.timeout()
		c.replyBy = now.Add(c.d.hosts.replyPatience(timeout))
		c.soonBy = time.Time{}
		if throughLeader(b) {
			c.soonBy = now.Add(timeout / 3)
		}
		c.limitLocked()
	}
	return n, nil
}

// throughLeader reports whether a frame that go-zookeeper writes is a request that the leader has
// to answer. A server that is cut off, or waits for a slow leader, answers the others at once all
// the same.
func throughLeader(frame []byte) bool {
	switch operation(frame) {
	case 1, 2, 5, 7, 9, 14, 19, 21:
		// create, delete, setData, setACL, sync, multi, createContainer, createTTL
		return true
	}
	return false
}

// operation is the operation of a request, 0 if the frame is too short to have one.
//
//	length(4) xid(4) op(4) ...
func operation(frame []byte) uint32 {
	if len(frame) < 12 {
		return 0
	}
	return binary.BigEndian.Uint32(frame[8:])
}

const opReconfig = 16

// awaitsReply reports whether something was written that nothing has arrived after.
func (c *serverConn) awaitsReply() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.replyBy.IsZero()
}

func (c *serverConn) signOfLife() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrived++
	if !c.replyBy.IsZero() {
		if time.Now().Before(c.soonBy) {
			c.d.hosts.repliesSoon()
		}
		c.replyBy = time.Time{}
		c.limitLocked()
	}
}

// SetReadDeadline is called by go-zookeeper. During the handshake the deadline is ours.
func (c *serverConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBy = t
	return c.limitLocked()
}

// SetWriteDeadline is like SetReadDeadline.
func (c *serverConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.established {
		return nil
	}
	return c.Conn.SetWriteDeadline(t)
}

// limitLocked sets the deadline for reading: the awaited reply's, or else go-zookeeper's, which
// counts from when something arrived last.
func (c *serverConn) limitLocked() error {
	if !c.established {
		return nil
	}
	t := c.replyBy
	if t.IsZero() {
		t = c.readBy
	}
	return c.Conn.SetReadDeadline(t)
}

// fail ends the connection, of which one direction has failed.
func (c *serverConn) fail(err error) error {
	if isTimeout(err) {
		c.d.hosts.isHung(c.address)
	}
	c.Conn.Close()
	return err
}

// handshake reads the server's answer to the handshake, shows the identities, sets the TreeWatch,
// and returns the answer, with the events behind it.
//
//	length(4) protocolVersion(4) timeOut(4, ms) sessionId(8) passwd(4+16) ...
func (c *serverConn) handshake() ([]byte, error) {
	answer, err := readFrame(c.Conn)
	if err != nil {
		return nil, c.misfit(err)
	}
	var events []byte
	const head = 20
	if len(answer) >= head {
		sessionID := binary.BigEndian.Uint64(answer[12:])
		if int32(binary.BigEndian.Uint32(answer[8:])) <= 0 || sessionID == 0 {
			c.refused() // the session has expired
		} else {
			if err := c.keep(answer); err != nil {
				return nil, err
			}
			c.d.granted.ms.Store(int32(binary.BigEndian.Uint32(answer[8:])))
			if err := c.authenticate(); err != nil {
				return nil, err
			}
			if err := c.resume(); err != nil {
				return nil, err
			}
			if events, err = c.watchTree(); err != nil {
				return nil, err
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.established, c.replyBy = true, time.Time{}
	return append(answer, events...), c.Conn.SetDeadline(time.Time{})
}

// greet is the handshake to write instead of go-zookeeper's: where that begins a session, it
// attaches to the one of the previous process, if there is one to try, or else has the timeout that
// was configured. go-zookeeper learns the session from the answer.
//
//	length(4) protocolVersion(4) lastZxidSeen(8) timeOut(4, ms) sessionId(8) passwd(4+16) ...
func (c *serverConn) greet(frame []byte) []byte {
	const timeoutAt, idAt, passwordAt, size = 16, 20, 32, 48
	if c.d.keeper == nil || len(frame) < size || binary.BigEndian.Uint64(frame[idAt:]) != 0 {
		return frame
	}
	frame = bytes.Clone(frame)
	timeoutMs := int32(max(1, c.d.asked.Milliseconds()))
	if s, ok := c.d.keeper.Offer(); ok {
		c.offers = true
		timeoutMs = min(timeoutMs, s.TimeoutMs)
		binary.BigEndian.PutUint64(frame[idAt:], uint64(s.ID))
		copy(frame[passwordAt:size], s.Password)
	}
	binary.BigEndian.PutUint32(frame[timeoutAt:], uint32(timeoutMs))
	return frame
}

// refused takes note that the server does not know the session.
func (c *serverConn) refused() {
	if c.offers {
		c.d.keeper.Refused()
	}
}

// keep has the session of the answer written to the session file, if there is one. The timeout in
// the answer becomes the shortest that was ever granted: a new leader of ZooKeeper's counts with
// the timeout of the session's creation until it has heard from us.
func (c *serverConn) keep(answer []byte) error {
	const passwordAt, size = 24, 40
	switch {
	case c.d.keeper == nil:
		return nil
	case len(answer) < size:
		return c.end(fmt.Errorf("recipes: %s answers a handshake with %d bytes, and no password", c.address,
			len(answer)))
	}
	timeoutMs, err := c.d.keeper.Attached(sessionfile.Session{
		ID:        int64(binary.BigEndian.Uint64(answer[12:])),
		TimeoutMs: int32(binary.BigEndian.Uint32(answer[8:])),
		Password:  bytes.Clone(answer[passwordAt:size]),
	})
	if err != nil {
		return c.end(err) // a session that no later process could attach to is none
	}
	binary.BigEndian.PutUint32(answer[8:], uint32(timeoutMs))
	return nil
}

// resume lists the nodes of a session that was taken up, behind a write that changes nothing: no
// request that the previous process has sent comes later. A new session lists its nodes, none, too,
// so that a server that has no such list is found out before it matters.
func (c *serverConn) resume() error {
	if c.d.keeper == nil || c.d.listed {
		return nil
	}
	// The header of an operation that is none, the last one.
	nothing := []byte{0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff}
	if _, err := c.ask(multiXid, multiOp, nothing); err != nil {
		return err
	}
	reply, err := c.ask(getEphemeralsXid, getEphemeralsOp, []byte("\x00\x00\x00\x01/"))
	if _, refuses := errors.AsType[errRefused](err); refuses {
		return c.end(fmt.Errorf("recipes: session file: the server does not list a session's nodes, as "+
			"ZooKeeper does since 3.6: %w", err))
	}
	if err != nil {
		return err
	}
	nodes, err := parseStrings(reply)
	if err == nil {
		err = c.d.keeper.Resumed(nodes)
	}
	if err != nil {
		return c.end(err)
	}
	c.d.listed = true
	return nil
}

// ask makes a request during the handshake, and returns the body of the reply.
//
//	length(4) xid(4) op(4) body
//	length(4) xid(4) zxid(8) error(4) body
func (c *serverConn) ask(xid int32, op uint32, body []byte) ([]byte, error) {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	b = binary.BigEndian.AppendUint32(b, op)
	if _, err := c.Conn.Write(append(b, body...)); err != nil {
		return nil, err
	}
	reply, err := readFrameUpTo(c.Conn, maxNodeList)
	if err != nil {
		return nil, err
	}
	if len(reply) < 20 || int32(binary.BigEndian.Uint32(reply[4:])) != xid {
		return nil, fmt.Errorf("recipes: %s answers a request with a frame of %d bytes that is no reply to it",
			c.address, len(reply))
	}
	switch code := int32(binary.BigEndian.Uint32(reply[16:])); code {
	case 0:
		return reply[20:], nil
	case saslRequired:
		return nil, c.end(fmt.Errorf("%s: %w", c.address, ErrLoginRequired))
	default:
		return nil, errRefused{c.address, code}
	}
}

// errRefused is an error in a server's reply.
type errRefused struct {
	address string
	code    int32
}

func (e errRefused) Error() string { return fmt.Sprintf("%s answers error %d", e.address, e.code) }

// parseStrings reads a list of strings: its length, -1 for none, and for each the length and the
// text.
func parseStrings(b []byte) (list []string, err error) {
	number := func() int {
		if len(b) < 4 {
			err = errors.New("recipes: the server's list of nodes is cut off")
			return 0
		}
		n := int(int32(binary.BigEndian.Uint32(b)))
		b = b[4:]
		return n
	}
	for n := number(); n > 0 && err == nil; n-- {
		size := number()
		if size < 0 || size > len(b) {
			return nil, errors.New("recipes: the server's list of nodes is cut off")
		}
		list, b = append(list, string(b[:size])), b[size:]
	}
	return list, err
}

// The xids and operations of the requests of resume, and the bytes of the longest list of nodes.
const (
	multiXid, multiOp                 = -107, 14
	getEphemeralsXid, getEphemeralsOp = -108, 103
	maxNodeList                       = 16 << 20
)

// Numbers of the protocol: the xid and the operation of a request that shows an identity, and the
// error of its refusal.
const (
	authXid      = -4
	authOp       = 100
	authFailed   = -115
	maxHandshake = 64 << 10 // bytes of a frame during the handshake; ZooKeeper's have 41
)

// authenticate shows the identities, and waits for the server to accept them: no other frame comes
// before that, as nothing has been asked for.
func (c *serverConn) authenticate() error {
	for _, a := range c.d.auth {
		if a.Scheme == SASL {
			if err := c.login(a); err != nil {
				return err
			}
			continue
		}
		if _, err := c.Conn.Write(authRequest(a)); err != nil {
			return err
		}
		reply, err := readFrame(c.Conn)
		if err != nil {
			return err
		}
		if len(reply) < 20 || int32(binary.BigEndian.Uint32(reply[4:])) != authXid {
			return fmt.Errorf("recipes: %s answers an authentication with a frame of %d bytes that is no reply to it",
				c.address, len(reply))
		}
		switch code := int32(binary.BigEndian.Uint32(reply[16:])); code {
		case 0:
		case authFailed:
			return c.refuse(a, nil)
		default:
			return fmt.Errorf("recipes: %s answers an authentication with error %d", c.address, code)
		}
	}
	return nil
}

// authRequest is the frame
//
//	length(4) xid(4) op(4) type(4) scheme(4+n) secret(4+n)
func authRequest(a Auth) []byte {
	xid := int32(authXid)
	b := make([]byte, 4, 24+len(a.Scheme)+len(a.Secret))
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	b = binary.BigEndian.AppendUint32(b, authOp)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(a.Scheme)))
	b = append(b, a.Scheme...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(a.Secret)))
	b = append(b, a.Secret...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// readFrame reads a frame of the handshake, with its length.
func readFrame(r io.Reader) ([]byte, error) { return readFrameUpTo(r, maxHandshake) }

// readFrameUpTo is readFrame with another limit, in bytes.
func readFrameUpTo(r io.Reader, most uint32) ([]byte, error) {
	frame := make([]byte, 4)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(frame)
	if n > most {
		return nil, fmt.Errorf("recipes: the server answers the handshake with %d bytes", n)
	}
	frame = append(frame, make([]byte, n)...)
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

// SASL is the scheme of an Auth that logs in with SASL, mechanism DIGEST-MD5, instead of showing
// its secret. The secret is "user:password".
const SASL = "sasl"

// The names that ZooKeeper's servers and clients have built in.
const (
	saslOp    = 102
	saslRealm = "zk-sasl-md5"
	saslURI   = "zookeeper/" + saslRealm
	// the errors of a login that fails: authFailed, and where SASL is required
	saslRequired = -124
)

// login logs in with SASL: it asks for a challenge, answers it, and checks that the server knows
// the password, too.
func (c *serverConn) login(a Auth) error {
	user, password, ok := strings.Cut(string(a.Secret), ":")
	if !ok {
		return c.refuse(a, errors.New("the secret is not user:password"))
	}
	challenge, err := c.saslStep(a, nil)
	if err != nil {
		return err
	}
	response, proof, err := saslResponse(string(challenge), user, password, rand.Text())
	if err != nil {
		return c.refuse(a, err)
	}
	answer, err := c.saslStep(a, []byte(response))
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(answer, []byte(proof)) != 1 {
		return c.refuse(a, errors.New("the server does not know the password"))
	}
	return nil
}

// saslStep sends a token and returns the one in the answer. The frames are
//
//	length(4) xid(4) op(4) token(4+n)
//	length(4) xid(4) zxid(8) error(4) token(4+n)
func (c *serverConn) saslStep(a Auth, token []byte) ([]byte, error) {
	xid := int32(authXid)
	b := binary.BigEndian.AppendUint32(nil, uint32(12+len(token)))
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	b = binary.BigEndian.AppendUint32(b, saslOp)
	b = binary.BigEndian.AppendUint32(b, uint32(len(token)))
	if _, err := c.Conn.Write(append(b, token...)); err != nil {
		return nil, err
	}
	reply, err := readFrame(c.Conn)
	if err != nil {
		return nil, err
	}
	if len(reply) < 20 || int32(binary.BigEndian.Uint32(reply[4:])) != authXid {
		return nil, fmt.Errorf("recipes: %s answers a login with a frame of %d bytes that is no reply to it",
			c.address, len(reply))
	}
	switch code := int32(binary.BigEndian.Uint32(reply[16:])); {
	case code == authFailed, code == saslRequired:
		return nil, c.refuse(a, errors.New("wrong user or password"))
	case code != 0:
		return nil, fmt.Errorf("recipes: %s answers a login with error %d", c.address, code)
	case len(reply) < 24 || int(int32(binary.BigEndian.Uint32(reply[20:]))) != len(reply)-24:
		return nil, c.refuse(a, errors.New("the server does not log in with SASL, or the login has failed"))
	}
	return reply[24:], nil
}

// refuse ends the Session: no server will take this identity. why may be nil.
func (c *serverConn) refuse(a Auth, why error) error {
	err := fmt.Errorf("recipes: %s refuses the identity of scheme %q: %w", c.address, a.Scheme, zk.ErrAuthFailed)
	if why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return c.end(err)
}

// saslResponse is the answer to a challenge, and the server's answer to that if it knows the
// password (RFC 2831).
func saslResponse(challenge, user, password, cnonce string) (response, proof string, err error) {
	_, nonce, ok := strings.Cut(challenge, `nonce="`)
	nonce, _, closed := strings.Cut(nonce, `"`)
	if !ok || !closed || strings.Contains(nonce, `\`) || !strings.Contains(challenge, `realm="`+saslRealm+`"`) {
		return "", "", errors.New("the challenge is none of ZooKeeper's")
	}
	const count = "00000001"
	hexed := func(parts ...string) string {
		sum := md5.Sum([]byte(strings.Join(parts, ":")))
		return hex.EncodeToString(sum[:])
	}
	ha1 := md5.Sum([]byte(saslEncode(user) + ":" + saslRealm + ":" + saslEncode(password)))
	a1 := hexed(string(ha1[:]), nonce, cnonce)
	digest := func(a2 string) string { return hexed(a1, nonce, count, cnonce, "auth", hexed(a2)) }
	response = fmt.Sprintf(`charset=utf-8,username="%s",realm="%s",nonce="%s",nc=%s,cnonce="%s",`+
		`digest-uri="%s",response=%s,qop=auth`,
		strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(user), saslRealm, nonce, count, cnonce, saslURI,
		digest("AUTHENTICATE:"+saslURI))
	return response, "rspauth=" + digest(":"+saslURI), nil
}

// saslEncode is a text in ISO 8859-1 if that has all of its characters, else in UTF-8: as the RFC
// has it hashed.
func saslEncode(text string) string {
	b := make([]byte, 0, len(text))
	for _, r := range text {
		if r > 0xff {
			return text
		}
		b = append(b, byte(r))
	}
	return string(b)
}

// TreeWatch is a watch on a node and all nodes below it that stands as long as the Session:
// ZooKeeper's persistent recursive watch, which servers have as of 3.6. No creation, change or
// deletion is missed while the connection lives, however quickly one follows another. (ZooKeeper
// 3.8.0 was seen to lose a creation within some milliseconds of a reconnect, but not the deletion;
// see TestLiveTreeWatch.)
type TreeWatch struct {
	// Path is the node at the top. It need not exist.
	Path string

	// Notify gets the events, one after the other. It must not block, nor call the Session: the
	// connection waits for it. Besides the events of nodes there are the session's (Type
	// zk.EventSession): with State zk.StateHasSession a connection begins, and events before it may
	// have been missed. If the server has no such watches, there is one event of Type
	// zk.EventNotWatching with its error for each connection.
	Notify func(zk.Event)
}

const (
	addWatchOp       = 106
	addWatchXid      = -106 // go-zookeeper's are positive; the reply is read here
	notificationXid  = -1
	watchesRecursive = 1
)

// watchTree sets the TreeWatch, if there is one. It returns the events that have arrived before the
// reply.
func (c *serverConn) watchTree() (events []byte, err error) {
	w := c.d.tree
	if w == nil {
		return nil, nil
	}
	if _, err := c.Conn.Write(addWatchRequest(w.Path)); err != nil {
		return nil, err
	}
	for {
		frame, err := readFrame(c.Conn)
		if err != nil {
			return nil, err
		}
		if len(frame) < 20 {
			return nil, fmt.Errorf("recipes: %s answers addWatch with a frame of %d bytes", c.address, len(frame))
		}
		switch xid := int32(binary.BigEndian.Uint32(frame[4:])); xid {
		case notificationXid:
			events = append(events, frame...)
		case addWatchXid:
			if code := int32(binary.BigEndian.Uint32(frame[16:])); code != 0 {
				w.Notify(zk.Event{
					Type: zk.EventNotWatching, Path: w.Path, Server: c.address,
					Err: fmt.Errorf("recipes: %s answers addWatch with error %d", c.address, code),
				})
			}
			return events, nil
		default:
			return nil, fmt.Errorf("recipes: %s answers addWatch with a frame of xid %d", c.address, xid)
		}
	}
}

// addWatchRequest is the frame
//
//	length(4) xid(4) op(4) path(4+n) mode(4)
func addWatchRequest(path string) []byte {
	xid := int32(addWatchXid)
	b := make([]byte, 4, 20+len(path))
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	b = binary.BigEndian.AppendUint32(b, addWatchOp)
	b = binary.BigEndian.AppendUint32(b, uint32(len(path)))
	b = append(b, path...)
	b = binary.BigEndian.AppendUint32(b, watchesRecursive)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}
