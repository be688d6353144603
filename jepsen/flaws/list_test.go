package flaws

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

// flaws are all that are played, in the order of their numbers.
var flaws = []flaw{
	{
		cve: "CVE-2014-0085", play: passwordInFiles,
		zookeeper: "the password is in no file", lockkeeper: "the password is in no file",
	},
	{
		cve: "CVE-2017-5637", play: costlyWords,
		zookeeper: "wchp is not executed, wchc is not executed", lockkeeper: "wchp is not executed, wchc is not executed",
	},
	{
		cve: "CVE-2018-8012", members: 3, play: joinQuorum,
		zookeeper: "a stranger reads the state", lockkeeper: "a stranger reads nothing",
	},
	{
		cve: "CVE-2019-0201", play: readACL,
		zookeeper: "NoAuth, then ann:x", lockkeeper: "NoAuth, then ann:x",
	},
	{
		cve: "CVE-2024-23944", play: hiddenEvent, // Debian has patched it
		zookeeper: "no event", lockkeeper: "no event",
	},
	{
		cve: "CVE-2026-59739", play: hiddenReplay,
		zookeeper: "NodeCreated /replay", lockkeeper: "no event",
	},
	{
		// 3.8.0 takes the path with the header of the request in front of it, so it finds none.
		cve: "CVE-2026-79993", play: deleteContainer,
		zookeeper: "BadArguments, BadArguments, and the node is there", lockkeeper: "Unimplemented, Unimplemented, and the node is there",
	},
	{
		cve: "CVE-2026-84439", play: forgedFields,
		zookeeper: "2 operations, 3 results", lockkeeper: "1 operations, 1 results",
	},
	{
		cve: "CVE-2026-84501", play: forgedLine,
		zookeeper: "the connection is ended, a forged line", lockkeeper: "the connection is ended, no forged line",
	},
	{
		cve: "CVE-2026-100235", play: revokedRight,
		zookeeper: "NoAuth, then Ok without the right", lockkeeper: "NoAuth, then NoAuth without the right",
	},
	{
		cve: "CVE-2026-100300", own: true, play: limitsOfNothing,
		zookeeper: "the connection is ended, the server is gone, and does not start again", lockkeeper: "Ok, the server serves",
	},
	{
		cve: "CVE-2026-100302", own: true, play: repeatedReads,
		zookeeper: "the connection is ended, the server is gone", lockkeeper: "BadArguments, the server serves",
	},
	{
		cve: "CVE-2026-115448", own: true, options: []string{"-Xss256k"}, play: deepTree,
		zookeeper: "the connection is ended, the server is gone", lockkeeper: "Ok, the server serves",
	},
}

// passwordInFiles logs in, gives a node to that user, and looks for the password in all files of
// the server.
func passwordInFiles(s *scene) string {
	const password = "Tr0ub4dor-and-3"
	s.connect("ann:"+password).create("/password", "ann")
	found := "no file"
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(password)) {
			found = filepath.Base(path)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return "the password is in " + found
}

// costlyWords asks for lists of all watches.
func costlyWords(s *scene) string {
	var answers []string
	for _, word := range []string{"wchp", "wchc"} {
		answer, err := jepsen.FourLetter(s.ctx, s.member.ClientAddr, word)
		if err != nil {
			s.t.Fatal(err)
		}
		answer, _, _ = strings.Cut(strings.TrimSpace(answer), " because")
		answers = append(answers, answer)
	}
	return strings.Join(answers, ", ")
}

// joinQuorum comes to the port between members from an address that no member has, as an unknown
// follower of ZooKeeper, and reads the answer.
func joinQuorum(s *scene) string {
	leader, err := s.cluster.AwaitLeader(s.ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	s.member = leader
	const secret = "payroll-of-ann"
	owner := s.connect("ann:pw")
	owner.create("/payroll", "ann")
	owner.must(wire.OpSetData, wire.SetDataRequest{Path: "/payroll", Data: []byte(secret), Version: -1})

	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	c, err := d.Dial("tcp", leader.PeerAddr)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	// A packet is type, zxid, data, and identities, of which there are none.
	packet := func(kind uint32, data []byte) {
		b := binary.BigEndian.AppendUint32(nil, kind)
		b = binary.BigEndian.AppendUint64(b, 0)
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(data))), data...)
		_, _ = c.Write(binary.BigEndian.AppendUint32(b, 0)) // reading fails, too
	}
	const followerInfo, ackEpoch, protocol = 11, 18, 0x10000
	packet(followerInfo, binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, 77), protocol), 0))
	var read []byte
	for buf := make([]byte, 64<<10); !bytes.Contains(read, []byte(secret)); {
		n, err := c.Read(buf)
		if err != nil {
			return "a stranger reads nothing"
		}
		if read == nil {
			packet(ackEpoch, make([]byte, 4)) // behind the leader's epoch
		}
		read = append(read, buf[:n]...)
	}
	return "a stranger reads the state"
}

// readACL asks for the ACL of a node without a right to it, and then with READ.
func readACL(s *scene) string {
	owner, other := s.connect("ann:pw"), s.connect()
	owner.create("/acl", "ann")
	hidden := other.outcome(wire.OpGetACL, wire.PathRequest{Path: "/acl"})
	owner.must(wire.OpSetACL, wire.SetACLRequest{Path: "/acl", Version: -1, ACL: []wire.ACL{
		{Perms: wire.PermAll, ID: wire.ID{Scheme: "auth"}}, {Perms: wire.PermRead, ID: wire.OpenACL[0].ID}}})
	var shown wire.GetACLResponse
	if err := wire.Decode(other.must(wire.OpGetACL, wire.PathRequest{Path: "/acl"}), &shown); err != nil {
		s.t.Fatal(err)
	}
	return hidden + ", then " + shown.ACL[0].ID.ID
}

// hiddenEvent watches recursively, and a node is made below that the client may not read.
func hiddenEvent(s *scene) string {
	owner, other := s.connect("ann:pw"), s.connect()
	owner.create("/hidden", "")
	other.must(wire.OpAddWatch, wire.AddWatchRequest{Path: "/hidden", Mode: wire.AddWatchPersistentRecursive})
	owner.create("/hidden/name", "ann")
	_, events, err := other.ask(wire.OpSync, wire.SyncRequest{Path: "/"})
	if err != nil {
		s.t.Fatal(err)
	}
	return eventsText(events)
}

// hiddenReplay claims, as a client that connects again, to have watched for a node that it may not
// read.
func hiddenReplay(s *scene) string {
	owner, other := s.connect("ann:pw"), s.connect()
	owner.create("/replay", "ann")
	_, events, err := other.ask(wire.OpSetWatches,
		wire.SetWatchesRequest{RelativeZxid: 1, Data: []string{}, Exist: []string{"/replay"}, Child: []string{}})
	if err != nil {
		s.t.Fatal(err)
	}
	return eventsText(events)
}

func eventsText(events []string) string {
	if len(events) == 0 {
		return "no event"
	}
	return strings.Join(events, ", ")
}

// raw is a request body that is not made of a record.
type raw string

// Append implements wire.Record.
func (r raw) Append(b []byte) []byte { return append(b, r...) }

// deleteContainer sends a leader's internal request for a container that has outlived its purpose,
// with the path as in other requests, and as bytes.
func deleteContainer(s *scene) string {
	owner := s.connect("ann:pw")
	owner.create("/container", "ann")
	var got []string
	for _, body := range []wire.Record{wire.PathRequest{Path: "/container"}, raw("/container")} {
		got = append(got, s.connect().outcome(wire.OpDeleteContainer, body))
	}
	if owner.outcome(wire.OpExists, wire.PathWatchRequest{Path: "/container"}) == "Ok" {
		got = append(got, "and the node is there")
	}
	return strings.Join(got, ", ")
}

// forgedFields logs in with a name, and sets an ACL for another one, that have tabs and fields in
// them.
func forgedFields(s *scene) string {
	c := s.connect("eve\tresult=success\toperation=delete:pw")
	c.create("/audited", "")
	c.must(wire.OpSetACL, wire.SetACLRequest{Path: "/audited", Version: -1, ACL: []wire.ACL{
		{Perms: wire.PermAll, ID: wire.ID{Scheme: "digest", ID: "eve\tresult=success:h"}}}})
	line := strings.TrimSpace(s.logged("operation=setAcl\tznode=/audited"))
	count := func(key string) (n int) {
		for field := range strings.SplitSeq(line, "\t") {
			if strings.HasPrefix(field, key+"=") {
				n++
			}
		}
		return n
	}
	return fmt.Sprintf("%d operations, %d results", count("operation"), count("result"))
}

// forgedLine names an ensemble with more than a line.
func forgedLine(s *scene) string {
	const forged = "12:00:00.000 [main] INFO forged"
	got := s.connect().outcome(wire.OpAuth, wire.AuthPacket{Scheme: "ensemble", Auth: []byte("beta\n" + forged + "\n")})
	// The lines behind it in the log show that it would be there.
	s.connect("eve:pw").create("/behind", "")
	s.logged("znode=/behind")
	if slices.Contains(strings.Split(s.log(), "\n"), forged) {
		return got + ", a forged line"
	}
	return got + ", no forged line"
}

// revokedRight sets an ACL that would give the client the right to set it. Then it takes a right
// away from everybody, and uses it in the request behind, before the answer, up to 20 times.
func revokedRight(s *scene) string {
	owner, other := s.connect("ann:pw"), s.connect()
	owner.create("/closed", "ann")
	given := other.outcome(wire.OpSetACL, wire.SetACLRequest{Path: "/closed", ACL: wire.OpenACL, Version: -1})
	onlyAnn := []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "digest", ID: "ann:h"}}}
	used := ""
	for i := 0; i < 20 && used != "Ok"; i++ {
		path := fmt.Sprint("/revoked", i)
		owner.create(path, "")
		_, _ = other.Write(slices.Concat(
			other.frame(wire.OpSetACL, wire.SetACLRequest{Path: path, ACL: onlyAnn, Version: -1}),
			other.frame(wire.OpSetData, wire.SetDataRequest{Path: path, Version: -1})))
		if _, _, err := other.answer(wire.OpSetACL); err != nil {
			s.t.Fatal(err)
		}
		_, _, err := other.answer(wire.OpSetData)
		used = text(err)
	}
	return fmt.Sprintf("%s, then %s without the right", given, used)
}

// limitsOfNothing makes the limits of a quota that is on no node.
func limitsOfNothing(s *scene) string {
	got := s.connect().outcome(wire.OpCreate, wire.CreateRequest{Path: "/zookeeper/quota/zookeeper_limits", Data: []byte("x"), ACL: wire.OpenACL})
	return got + ", " + s.afterwards(true)
}

// repeatedReads asks for a node of 900 kB, 100 times in one request of 3 kB.
func repeatedReads(s *scene) string {
	c := s.connect()
	c.must(wire.OpCreate, wire.CreateRequest{Path: "/big", Data: make([]byte, 900_000), ACL: wire.OpenACL})
	var request wire.MultiRequest
	for range 100 {
		request.Ops = append(request.Ops, wire.MultiOp{Op: wire.OpGetData, Record: &wire.PathWatchRequest{Path: "/big"}})
	}
	got := c.outcome(wire.OpMultiRead, request)
	return got + ", " + s.afterwards(false)
}

// deepTree makes a tree that is 2,500 nodes deep, and has its nodes counted.
func deepTree(s *scene) string {
	c := s.connect()
	path := ""
	for range 20 {
		var ops []wire.MultiOp
		for range 125 {
			path += "/d"
			ops = append(ops, wire.MultiOp{Op: wire.OpCreate, Record: &wire.CreateRequest{Path: path, ACL: wire.OpenACL}})
		}
		c.must(wire.OpMulti, wire.MultiRequest{Ops: ops})
	}
	const quota = "/zookeeper/quota/d"
	c.create(quota, "")
	c.must(wire.OpCreate, wire.CreateRequest{Path: quota + "/zookeeper_limits", Data: []byte("count=1000000,bytes=-1"), ACL: wire.OpenACL})
	got := c.outcome(wire.OpCreate, wire.CreateRequest{Path: quota + "/zookeeper_stats", Data: []byte("count=0,bytes=0"), ACL: wire.OpenACL})
	return got + ", " + s.afterwards(false)
}
