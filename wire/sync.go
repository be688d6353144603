package wire

// SyncRequest is the body of sync. The path has no meaning but comes back in the answer as it was
// sent.
type SyncRequest struct {
	Path     string
	NullPath bool
}

// Append encodes r.
func (r SyncRequest) Append(b []byte) []byte { return appendNullString(b, r.Path, r.NullPath) }

// Decode reads r from d.
func (r *SyncRequest) Decode(d *Decoder) error {
	r.Path, r.NullPath = d.NullString()
	return d.Err()
}

// SyncResponse answers sync.
type SyncResponse struct {
	Path     string
	NullPath bool
}

// Append encodes r.
func (r SyncResponse) Append(b []byte) []byte { return appendNullString(b, r.Path, r.NullPath) }

// Decode reads r from d.
func (r *SyncResponse) Decode(d *Decoder) error {
	r.Path, r.NullPath = d.NullString()
	return d.Err()
}
