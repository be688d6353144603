package peer

// fakeLocal is what a test says of this member.
type fakeLocal struct {
	servers []Server
	leader  MemberID // its disk has the same number; 0: none is known
}

func (l fakeLocal) Servers() []Server { return l.servers }

func (l fakeLocal) Leader() (Server, bool) {
	return Server{Member: l.leader, Disk: DiskID(l.leader), Voter: true}, l.leader != 0
}
