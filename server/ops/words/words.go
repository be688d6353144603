package words

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"lockkeeper/server/ops"
	"lockkeeper/server/ops/door"
	"lockkeeper/session"
	"lockkeeper/znode"
)

// listingWords are the four-letter words that are answered by listings.
var listingWords = map[string]bool{"cons": true, "dump": true, "stat": true, "wchc": true, "wchp": true}

// anyTime are the four-letter words that are answered in any state; the others are while this
// member serves clients.
var anyTime = map[string]bool{"envi": true, "mbrs": true, "gtmk": true, "isro": true, "mays": true, "ruok": true,
	"stmk": true}

const notServing = "This ZooKeeper instance is not currently serving requests\n"

// Words answers four-letter words.
type Words struct{ *ops.Shared }

// Asking is the connection that a four-letter word came from.
type Asking struct {
	Remote netip.AddrPort
	Input  io.Reader // behind the word
}

// listingWait bounds how long a listing waits for others to be sent.
const listingWait = 10 * time.Second

// Answer makes the answer to a four-letter word, and sends it while it holds a turn if it is a
// listing. Without a turn it sends nothing.
func (s *Words) Answer(word string, asking Asking, send func(answer string)) {
	if listingWords[word] {
		end, ok := s.BeginListing(context.Background(), listingWait)
		if !ok {
			return
		}
		defer end()
	}
	answer := s.text(word, asking)
	if answer != notServing && s.Config().AllowsWord(word) {
		s.audit(word, asking.Remote.Addr())
	}
	send(answer)
}

// auditWords are the operations of four-letter words that change something: the names of the same
// commands of the AdminServer.
var auditWords = map[string]string{"srst": "stat_reset", "crst": "connection_stat_reset", "stmk": "set_trace_mask"}

// audit writes a four-letter word to the audit log, if it changes something.
func (s *Words) audit(word string, from netip.Addr) {
	if operation := auditWords[word]; operation != "" {
		s.Door.AuditRecord(&session.AuditRecord{Users: []string{from.String()}, Schemes: []string{"ip"},
			Addr:      from.String(),
			Operation: operation, Result: session.AuditSuccess})
	}
}

func (s *Words) text(word string, asking Asking) string {
	m := s.Standing()
	switch {
	case !s.Config().AllowsWord(word):
		return word + " is not executed because it is not in the whitelist.\n"
	case !anyTime[word] && !m.Serving && !m.ReadOnly:
		return notServing
	}
	switch word {
	case "ruok":
		return "imok"
	case "isro":
		switch {
		case m.Serving:
			return "rw"
		case m.ReadOnly:
			return "ro"
		}
		return "null"
	case "srvr":
		return srvrText(s.Figures(), "")
	case "stat":
		return srvrText(s.Figures(), s.clientsText(asking))
	case "cons":
		return s.consText(asking)
	case "conf":
		return s.confText()
	case "mntr":
		return mntrText(s.Figures(), s.Usage())
	case "mbrs":
		return jsonLine(ops.Status(s))
	case "mays":
		return s.stoppableText()
	case "dirs":
		u := s.Usage()
		return fmt.Sprintf("datadir_size: %d\nlogdir_size: %d\n", u.DataBytes, u.LogBytes)
	case "wchs":
		w := s.Sessions().Stats().Watches
		return fmt.Sprintf("%d connections watching %d paths\nTotal watches:%d\n", w.Connections, w.Paths,
			w.DataWatches)
	case "wchc":
		return s.wchcText()
	case "wchp":
		return s.wchpText()
	case "dump":
		return s.dumpText()
	case "hash":
		return s.hashText()
	case "envi":
		return enviText(s.Figures().Build)
	case "gtmk":
		return strconv.FormatInt(s.TraceMask.Load(), 10)
	case "stmk":
		return s.setTraceMask(asking.Input)
	case "crst":
		ops.ResetConnectionStats(s)
		return "Connection stats reset.\n"
	case "srst":
		s.ResetStats()
		return "Server stats reset.\n"
	}
	// zoocfg.FourLetterWords has only words with an answer.
	panic("words: no answer to the four-letter word " + word)
}

// jsonLine is the answer to our own words, in one line.
func jsonLine(v any) string { return string(door.Encode(v)) + "\n" }

// stoppableText is mays: ops.Stoppable.
func (s *Words) stoppableText() string {
	ctx, cancel := context.WithTimeout(context.Background(), door.Timeout)
	defer cancel()
	return jsonLine(s.Stoppable(ctx, true))
}

// setTraceMask reads the new trace mask, the eight bytes that follow stmk, and returns it.
func (s *Words) setTraceMask(input io.Reader) string {
	b := make([]byte, 8)
	if _, err := io.ReadFull(input, b); err != nil {
		return ""
	}
	mask := int64(binary.BigEndian.Uint64(b))
	s.TraceMask.Store(mask)
	return strconv.FormatInt(mask, 10)
}

// srvrText is srvr, and with the clients in between it is stat.
func srvrText(f *ops.Figures, clients string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Zookeeper version: %s\n", f.Build)
	if f.Mode() == ops.ReadOnlyMode {
		b.WriteString("READ-ONLY mode; serving only read-only clients\n")
	}
	b.WriteString(clients)
	l := f.Work.Latency
	fmt.Fprintf(&b, "Latency min/avg/max: %d/%s/%d\n", l.MinMs, ops.JavaDouble(l.AvgMs()), l.MaxMs)
	fmt.Fprintf(&b, "Received: %d\n", f.Received())
	fmt.Fprintf(&b, "Sent: %d\n", f.Sent())
	fmt.Fprintf(&b, "Connections: %d\n", f.Connections)
	fmt.Fprintf(&b, "Outstanding: %d\n", f.Work.Outstanding)
	fmt.Fprintf(&b, "Zxid: 0x%x\n", uint64(f.Zxid))
	fmt.Fprintf(&b, "Mode: %s\n", f.Mode())
	fmt.Fprintf(&b, "Node count: %d\n", f.State.Nodes)
	return b.String()
}

// mntrText is mntr.
func mntrText(f *ops.Figures, u ops.Usage) string {
	var b strings.Builder
	fmt.Fprintf(&b, "zk_version\t%s\n", f.Build)
	fmt.Fprintf(&b, "zk_server_state\t%s\n", f.Mode())
	if !f.Alone && f.Mode() != ops.ReadOnlyMode {
		fmt.Fprintf(&b, "zk_peer_state\t%s\n", f.PeerState())
		if f.Mode() == "observer" {
			fmt.Fprintf(&b, "zk_observer_master_id\t%d\n", f.Replica.Leader)
		}
	}
	for name, value := range f.Metrics(u).Lines() {
		if f, ok := value.(float64); ok {
			value = ops.JavaDecimal(f)
		}
		fmt.Fprintf(&b, "zk_%s\t%v\n", name, value)
	}
	return b.String()
}

func (s *Words) clientsText(asking Asking) string {
	b := s.newListing()
	fmt.Fprint(b, "Clients:\n")
	for _, c := range s.Connections() {
		fmt.Fprintf(b, " %s\n", line(c, asking))
	}
	fmt.Fprintln(b)
	return b.String()
}

// consText is the list of stat with the details of each session.
func (s *Words) consText(asking Asking) string {
	b := s.newListing()
	for _, c := range s.Connections() {
		line := line(c, asking)
		if c.Session != nil {
			line = strings.TrimSuffix(line, ")") + sessionDetails(c.Session.Stats()) + ")"
		}
		fmt.Fprintf(b, " %s\n", line)
	}
	fmt.Fprintln(b)
	return b.String()
}

// line describes a connection:
//
//	/127.0.0.1:43798[1](queued=0,recved=4,sent=4)
//
// The number in brackets is ops.Interest, 0 on the connection that asks.
func line(c ops.Connection, asking Asking) string {
	var stats session.ConnStats
	if c.Session != nil {
		stats = c.Session.Stats()
	}
	interest := ops.Interest(stats)
	if c.Remote == asking.Remote {
		interest, stats.Received = 0, 1
	}
	return fmt.Sprintf("/%s[%d](queued=%d,recved=%d,sent=%d)", c.Remote, interest, stats.Queued, stats.Received,
		stats.Sent)
}

// sessionDetails is the part of a line of cons that only a connection with a session has.
func sessionDetails(st session.ConnStats) string {
	var b strings.Builder
	fmt.Fprintf(&b, ",sid=0x%x,lop=%s,est=%d,to=%d", uint64(st.Session), ops.OpName(st.LastOp),
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

// confText is the configuration as it is in force.
func (s *Words) confText() string {
	c, f, u := s.Config(), s.Figures(), s.Usage()
	id := 0
	if !c.Standalone() {
		id = int(c.Cluster.ID)
	}
	var b strings.Builder
	line := func(key string, value any) { fmt.Fprintf(&b, "%s=%v\n", key, value) }
	line("clientPort", f.ClientPort)
	line("secureClientPort", f.SecurePort)
	line("dataDir", u.DataDir)
	line("dataDirSize", u.DataBytes)
	line("dataLogDir", u.DataLogDir)
	line("dataLogSize", u.LogBytes)
	line("tickTime", c.Sessions.TickTime.Milliseconds())
	line("maxClientCnxns", max(c.Client.MaxCnxnsPerAddr, 0))
	line("minSessionTimeout", c.Sessions.MinTimeout.Milliseconds())
	line("maxSessionTimeout", c.Sessions.MaxTimeout.Milliseconds())
	line("clientPortListenBacklog", c.Client.Backlog)
	line("serverId", id)
	if c.Standalone() {
		return b.String()
	}
	self, _ := f.Membership.Member(c.Cluster.ID)
	peerType := 0
	if self.Observer {
		peerType = 1
	}
	line("initLimit", c.Cluster.InitLimit)
	line("syncLimit", c.Cluster.SyncLimit)
	line("electionAlg", 3)
	line("electionPort", self.ElectionPort)
	line("quorumPort", self.PeerPort)
	line("peerType", peerType)
	b.WriteString("membership: \n")
	b.WriteString(znode.ConfigText(f.Membership.Members, f.Membership.Version))
	return b.String()
}

// enviText is the environment as a four-letter word has it.
func enviText(build string) string {
	var b strings.Builder
	b.WriteString("Environment:\n")
	for _, kv := range ops.Environment(build) {
		fmt.Fprintf(&b, "%s=%s\n", kv[0], kv[1])
	}
	return b.String()
}
