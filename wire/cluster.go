package wire

// SyncQuestion is the path of a sync with which a client asks whether sync is linearizable: whether
// its answer proves a majority. The answer is SyncLinearizable. ZooKeeper, where sync is none, and
// any server that does not know the question echo the path.
const (
	SyncQuestion     = "/zookeeper/sync"
	SyncLinearizable = "/zookeeper/sync/linearizable"
)

// SyncRequest is the body of sync. The path has no meaning but comes back in the answer as it was
// sent, except for SyncQuestion.
type SyncRequest struct {
	Path     string
	NullPath bool
}

// Append encodes r.
func (r SyncRequest) Append(b []byte) []byte { return appendNullString(b, r.Path, r.NullPath) }

// Decode reads r from d.
func (r *SyncRequest) Decode(d *Decoder) { r.Path, r.NullPath = d.NullString() }

// SyncResponse answers sync.
type SyncResponse = SyncRequest

// ReconfigRequest is the body of reconfig. A null NewMembers means an incremental change by
// Joining and Leaving, an empty one for an empty membership; in the other two null and empty mean
// the same.
type ReconfigRequest struct {
	Joining, Leaving, NewMembers             string
	NullJoining, NullLeaving, NullNewMembers bool
	// expected version of the configuration; -1 = any
	CurConfigID int64
}

// Append encodes r.
func (r ReconfigRequest) Append(b []byte) []byte {
	b = appendNullString(b, r.Joining, r.NullJoining)
	b = appendNullString(b, r.Leaving, r.NullLeaving)
	b = appendNullString(b, r.NewMembers, r.NullNewMembers)
	return appendInt64(b, r.CurConfigID)
}

// Decode reads r from d.
func (r *ReconfigRequest) Decode(d *Decoder) {
	r.Joining, r.NullJoining = d.NullString()
	r.Leaving, r.NullLeaving = d.NullString()
	r.NewMembers, r.NullNewMembers = d.NullString()
	r.CurConfigID = d.Int64()
}
