package wire

// ReconfigRequest is the body of reconfig. A null NewMembers asks for an incremental change by
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
func (r *ReconfigRequest) Decode(d *Decoder) error {
	r.Joining, r.NullJoining = d.NullString()
	r.Leaving, r.NullLeaving = d.NullString()
	r.NewMembers, r.NullNewMembers = d.NullString()
	r.CurConfigID = d.Int64()
	return d.Err()
}
