package server

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/quorum"
	"lockkeeper/server/datadir"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// listingWords are the four-letter words that are answered by listings.
var listingWords = map[string]bool{"cons": true, "dump": true, "stat": true, "wchc": true, "wchp": true}

// anyTime are the four-letter words that are answered in any state; the others are while this
// member serves clients.
var anyTime = map[string]bool{"envi": true, "mbrs": true, "gtmk": true, "isro": true, "mays": true, "ruok": true, "stmk": true}

const notServing = "This ZooKeeper instance is not currently serving requests\n"

// answerWord answers a four-letter word and ends the connection. The answer is sent in one piece,
// because kazoo reads only once, and what the client still sends is read before the end, because
// otherwise TCP might drop the answer (docs/protocol/admin.md section 1).
func (s *Server) answerWord(c *conn, word string) {
	c.parting.Store(true)
	s.counters.wordsReceived.Add(1)
	s.counters.bytesReceived.Add(4)
	s.log.Debug("four-letter word", "client", c.remote, "word", word)
	if listingWords[word] {
		select {
		case s.listings <- struct{}{}:
			defer func() { <-s.listings }()
		case <-time.After(farewellTimeout):
			return // other clients do not read their listings
		}
	}
	answer := s.wordText(c, word)
	if answer != notServing && s.cfg.AllowsWord(word) {
		s.auditWord(c, word)
	}
	s.counters.wordsSent.Add(1)
	_ = c.SetWriteDeadline(time.Now().Add(farewellTimeout))
	if _, err := c.Write([]byte(answer)); err != nil {
		return
	}
	c.part()
}

func (s *Server) wordText(c *conn, word string) string {
	switch {
	case !s.cfg.AllowsWord(word):
		return word + " is not executed because it is not in the whitelist.\n"
	case !anyTime[word] && !s.Serving() && !s.sessions.ReadOnly():
		return notServing
	}
	switch word {
	case "ruok":
		return "imok"
	case "isro":
		switch {
		case s.Serving():
			return "rw"
		case s.sessions.ReadOnly():
			return "ro"
		}
		return "null"
	case "srvr":
		return s.srvrText(s.overview(), "")
	case "stat":
		return s.srvrText(s.overview(), s.clientsText(c))
	case "cons":
		return s.consText(c)
	case "conf":
		return s.confText()
	case "mntr":
		return s.mntrText(s.overview())
	case "mbrs":
		return s.membersText()
	case "mays":
		return s.stoppableText()
	case "dirs":
		dirs, logs := s.dirSizes()
		return fmt.Sprintf("datadir_size: %d\nlogdir_size: %d\n", dirs, logs)
	case "wchs":
		w := s.sessions.Stats().Watches
		return fmt.Sprintf("%d connections watching %d paths\nTotal watches:%d\n", w.Connections, w.Paths, w.DataWatches)
	case "wchc":
		return s.wchcText()
	case "wchp":
		return s.wchpText()
	case "dump":
		return s.dumpText()
	case "hash":
		return s.hashText()
	case "envi":
		return s.enviText()
	case "gtmk":
		return strconv.FormatInt(s.traceMask.Load(), 10)
	case "stmk":
		return s.setTraceMask(c)
	case "crst":
		s.resetConnectionStats()
		return "Connection stats reset.\n"
	case "srst":
		s.resetStats()
		return "Server stats reset.\n"
	}
	// zoocfg.FourLetterWords has only words with an answer.
	panic("server: no answer to the four-letter word " + word)
}

func (s *Server) resetConnectionStats() {
	for _, c := range s.port.list() {
		if sess := c.session.Load(); sess != nil {
			sess.ResetStats()
		}
	}
}

func (s *Server) resetStats() {
	s.sessions.ResetStats()
	s.counters.reset()
	s.replica.Measures().Reset()
	s.clocks.pauses.Reset()
}

// defaultTraceMask is ZooKeeper's, where the mask chooses what is written to the trace log. Here it
// is kept for the tools that set it, and has no effect.
const defaultTraceMask = 306

// setTraceMask reads the new trace mask, the eight bytes that follow stmk, and returns it.
func (s *Server) setTraceMask(c *conn) string {
	b := make([]byte, 8)
	if _, err := c.r.Discard(4); err != nil {
		return ""
	}
	if _, err := io.ReadFull(c.r, b); err != nil {
		return ""
	}
	mask := int64(binary.BigEndian.Uint64(b))
	s.traceMask.Store(mask)
	return strconv.FormatInt(mask, 10)
}

// overview are the figures of srvr, stat and mntr at one moment.
type overview struct {
	work           session.Stats
	status         quorum.Status
	counts         znode.Counts
	zxid           wire.Zxid
	connections    int
	received, sent int64
}

func (s *Server) overview() overview {
	o := overview{
		work:        s.sessions.Stats(),
		status:      s.replica.Status(),
		connections: s.port.count(),
	}
	s.replica.View(func(store *znode.Store) {
		o.counts = store.Counts()
		o.zxid = store.Zxid()
	})
	// Handshakes and four-letter words are packets, too.
	o.received = o.work.PacketsReceived + s.counters.wordsReceived.Load() + s.counters.connectRequests.Load()
	o.sent = o.work.PacketsSent + s.counters.wordsSent.Load() +
		s.counters.connectRequests.Load() - s.counters.refusedHandshakes.Load()
	return o
}

const readOnlyMode = "read-only"

// mode is the role as ZooKeeper names it.
func (s *Server) mode(o overview) string {
	if o.status.Role == "looking" && s.sessions.ReadOnly() {
		return readOnlyMode
	}
	return o.status.Role
}

// srvrText is srvr, and with the clients in between it is stat.
func (s *Server) srvrText(o overview, clients string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Zookeeper version: %s\n", s.build)
	if s.mode(o) == readOnlyMode {
		b.WriteString("READ-ONLY mode; serving only read-only clients\n")
	}
	b.WriteString(clients)
	l := o.work.Latency
	fmt.Fprintf(&b, "Latency min/avg/max: %d/%s/%d\n", l.MinMs, javaDouble(l.AvgMs()), l.MaxMs)
	fmt.Fprintf(&b, "Received: %d\n", o.received)
	fmt.Fprintf(&b, "Sent: %d\n", o.sent)
	fmt.Fprintf(&b, "Connections: %d\n", o.connections)
	fmt.Fprintf(&b, "Outstanding: %d\n", o.work.Outstanding)
	fmt.Fprintf(&b, "Zxid: 0x%x\n", uint64(o.zxid))
	fmt.Fprintf(&b, "Mode: %s\n", s.mode(o))
	fmt.Fprintf(&b, "Node count: %d\n", o.counts.Nodes)
	return b.String()
}

// javaDouble writes a number as Java does, rounded to four decimals: there is always a decimal
// point.
func javaDouble(f float64) string {
	return javaDecimal(math.Round(f*10000) / 10000)
}

// javaDecimal writes a number as Java does, but for very small and large ones.
func javaDecimal(f float64) string {
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

func (s *Server) clientsText(asking *conn) string {
	b := s.newListing()
	fmt.Fprint(b, "Clients:\n")
	for _, c := range s.sortedConns() {
		fmt.Fprintf(b, " %s\n", c.line(c == asking))
	}
	fmt.Fprintln(b)
	return b.String()
}

// consText is the list of stat with the details of each session.
func (s *Server) consText(asking *conn) string {
	b := s.newListing()
	for _, c := range s.sortedConns() {
		line := c.line(c == asking)
		if sess := c.session.Load(); sess != nil {
			line = strings.TrimSuffix(line, ")") + sessionDetails(sess.Stats()) + ")"
		}
		fmt.Fprintf(b, " %s\n", line)
	}
	fmt.Fprintln(b)
	return b.String()
}

func (s *Server) sortedConns() []*conn {
	list := s.port.list()
	slices.SortFunc(list, func(a, b *conn) int { return cmp.Compare(a.number, b.number) })
	return list
}

// line describes a connection:
//
//	/127.0.0.1:43798[1](queued=0,recved=4,sent=4)
//
// The number in brackets stands for what ZooKeeper waits for: 1 = to read, 5 = to write as well, 0
// = neither.
func (c *conn) line(asking bool) string {
	var stats session.ConnStats
	if sess := c.session.Load(); sess != nil {
		stats = sess.Stats()
	}
	interest := interest(stats)
	if asking {
		interest, stats.Received = 0, 1
	}
	return fmt.Sprintf("/%s[%d](queued=%d,recved=%d,sent=%d)", c.remote, interest, stats.Queued, stats.Received,
		stats.Sent)
}

// interest is the number that stands for what ZooKeeper waits for.
func interest(stats session.ConnStats) int {
	if stats.Unsent > 0 {
		return 5
	}
	return 1
}

// sessionDetails is the part of a line of cons that only a connection with a session has.
func sessionDetails(st session.ConnStats) string {
	var b strings.Builder
	fmt.Fprintf(&b, ",sid=0x%x,lop=%s,est=%d,to=%d", uint64(st.Session), cmp.Or(opNames[st.LastOp], "NA"),
		st.Established.UnixMilli(), st.Timeout.Milliseconds())
	if st.LastXid >= 0 {
		fmt.Fprintf(&b, ",lcxid=0x%x", uint32(st.LastXid))
	}
	var lastReplyMs int64
	if !st.LastReply.IsZero() {
		lastReplyMs = st.LastReply.UnixMilli()
	}
	fmt.Fprintf(&b, ",lzxid=0x%x,lresp=%d,llat=%d,minlat=%d,avglat=%d,maxlat=%d", uint64(st.LastZxid), lastReplyMs,
		st.LastLatencyMs, st.Latency.MinMs, int64(st.Latency.AvgMs()), st.Latency.MaxMs)
	return b.String()
}

// opNames are ZooKeeper's short names of operations, in cons; any other is NA.
var opNames = map[wire.Op]string{
	wire.OpPing: "PING", wire.OpCreateSession: "SESS", wire.OpCloseSession: "CLOS", wire.OpSync: "SYNC",
	wire.OpCreate: "CREA", wire.OpCreate2: "CREA", wire.OpCreateContainer: "CREA", wire.OpCreateTTL: "CREA",
	wire.OpDelete: "DELE", wire.OpSetData: "SETD", wire.OpSetACL: "SETA", wire.OpReconfig: "RECO",
	wire.OpMulti: "MULT", wire.OpMultiRead: "MLTR", wire.OpCheck: "CHEC", wire.OpWhoAmI: "HOMI",
	wire.OpExists: "EXIS", wire.OpGetData: "GETD", wire.OpGetACL: "GETA", wire.OpGetEphemerals: "GETE",
	wire.OpGetChildren: "GETC", wire.OpGetChildren2: "GETC", wire.OpGetAllChildrenNumber: "GETACN",
	wire.OpSetWatches: "SETW", wire.OpSetWatches2: "STW2", wire.OpAddWatch: "ADDW",
	wire.OpCheckWatches: "CHKW", wire.OpRemoveWatches: "REMW",
}

// confText is the configuration as it is in force.
func (s *Server) confText() string {
	c := &s.cfg
	port, securePort := s.clientPorts()
	dataDir, logDir := s.absoluteDirs()
	dataSize, logSize := s.dirSizes()
	id := 0
	if !c.Standalone() {
		id = int(c.ID)
	}
	var b strings.Builder
	line := func(key string, value any) { fmt.Fprintf(&b, "%s=%v\n", key, value) }
	line("clientPort", port)
	line("secureClientPort", securePort)
	line("dataDir", dataDir)
	line("dataDirSize", dataSize)
	line("dataLogDir", logDir)
	line("dataLogSize", logSize)
	line("tickTime", c.TickTime.Milliseconds())
	line("maxClientCnxns", max(c.MaxClientCnxns, 0))
	line("minSessionTimeout", c.MinSessionTimeout.Milliseconds())
	line("maxSessionTimeout", c.MaxSessionTimeout.Milliseconds())
	line("clientPortListenBacklog", c.Backlog)
	line("serverId", id)
	if c.Standalone() {
		return b.String()
	}
	members := s.present()
	self, _ := members.member(c.ID)
	peerType := 0
	if self.Observer {
		peerType = 1
	}
	line("initLimit", c.InitLimit)
	line("syncLimit", c.SyncLimit)
	line("electionAlg", 3)
	line("electionPort", self.ElectionPort)
	line("quorumPort", self.PeerPort)
	line("peerType", peerType)
	b.WriteString("membership: \n")
	b.WriteString(znode.ConfigText(members.members, members.version))
	return b.String()
}

// clientPorts are the ports for clients, the second one with TLS only; -1 if there is none.
func (s *Server) clientPorts() (port, securePort int) {
	port, securePort = 0, -1
	if at, ok := s.ClientAddr().(*net.TCPAddr); ok {
		port = at.Port
	}
	if at, ok := s.SecureClientAddr().(*net.TCPAddr); ok {
		securePort = at.Port
	}
	if s.cfg.ClientTLS == zoocfg.TLSOnly {
		return -1, port
	}
	return port, securePort
}

// absoluteDirs are dataDir and dataLogDir; empty with injected stores.
func (s *Server) absoluteDirs() (data, log string) {
	if s.cfg.Stores != nil {
		return "", ""
	}
	return absolute(s.cfg.DataDir), absolute(s.cfg.DataLogDir)
}

func absolute(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
}

// dirSizes adds up what the member has on disk: snapshots and log, as far as they are in
// directories of their own.
func (s *Server) dirSizes() (dataBytes, logBytes int64) {
	if s.cfg.Stores != nil {
		return 0, 0
	}
	return datadir.Size(s.cfg.DataDir), datadir.Size(s.cfg.DataLogDir)
}

// enviText is the environment as a four-letter word has it.
func (s *Server) enviText() string {
	var b strings.Builder
	b.WriteString("Environment:\n")
	for _, kv := range s.environment() {
		fmt.Fprintf(&b, "%s=%s\n", kv[0], kv[1])
	}
	return b.String()
}

// environment describes the process. ZooKeeper's facts about its JVM have no counterpart here.
func (s *Server) environment() [][2]string {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	mb := func(n uint64) string { return fmt.Sprintf("%dMB", n>>20) }
	orEmpty := func(text string, _ error) string { return text }
	name := ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return [][2]string{
		{"zookeeper.version", s.build},
		{"host.name", orEmpty(os.Hostname())},
		{"go.version", runtime.Version()},
		{"os.name", runtime.GOOS},
		{"os.arch", runtime.GOARCH},
		{"user.name", name},
		{"user.home", orEmpty(os.UserHomeDir())},
		{"user.dir", orEmpty(os.Getwd())},
		{"os.memory.free", mb(m.HeapIdle - m.HeapReleased)},
		{"os.memory.total", mb(m.Sys)},
	}
}
