package wire

// PasswordLen is the number of bytes of the session password in every ConnectResponse. A client may
// send any number.
const PasswordLen = 16

// Password is the password of a session.
type Password [PasswordLen]byte

// ConnectRequest is the first frame of a client; it has no header (docs/protocol/wire.md section
// 4).
type ConnectRequest struct {
	ProtocolVersion int32     // ignored
	LastZxidSeen    Zxid      // a member that has applied less must refuse
	TimeoutMs       int32     // requested session timeout; any value, also negative
	SessionID       SessionID // 0 = a new session
	Password        []byte    // any length, also null
	ReadOnly        bool      // the client may be served by a member that only reads
	// the ReadOnly byte is on the wire; the response must then have it too
	HasReadOnly bool
}

// Append encodes r.
func (r ConnectRequest) Append(b []byte) []byte {
	b = appendInt32(b, r.ProtocolVersion)
	b = appendInt64(b, int64(r.LastZxidSeen))
	b = appendInt32(b, r.TimeoutMs)
	b = appendInt64(b, int64(r.SessionID))
	b = appendBuffer(b, r.Password)
	if r.HasReadOnly {
		b = appendBool(b, r.ReadOnly)
	}
	return b
}

// Decode reads r from d. Password aliases the input.
func (r *ConnectRequest) Decode(d *Decoder) {
	r.ProtocolVersion = d.Int32()
	r.LastZxidSeen = Zxid(d.Int64())
	r.TimeoutMs = d.Int32()
	r.SessionID = SessionID(d.Int64())
	r.Password = d.Buffer()
	r.ReadOnly, r.HasReadOnly = d.optionalBool()
}

// ConnectResponse is the first frame of a server; it has no header. All zero but for a Password of
// 16 zero bytes it says that the session has expired or that the password was wrong.
type ConnectResponse struct {
	ProtocolVersion int32 // always 0
	TimeoutMs       int32 // negotiated session timeout; 0 = refused
	SessionID       SessionID
	Password        []byte
	ReadOnly        bool // this member only reads
	// as in the request: the C client hangs, go-zookeeper miscounts, when it differs
	HasReadOnly bool
}

// Append encodes r.
func (r ConnectResponse) Append(b []byte) []byte {
	b = appendInt32(b, r.ProtocolVersion)
	b = appendInt32(b, r.TimeoutMs)
	b = appendInt64(b, int64(r.SessionID))
	b = appendBuffer(b, r.Password)
	if r.HasReadOnly {
		b = appendBool(b, r.ReadOnly)
	}
	return b
}

// Decode reads r from d. Password aliases the input.
func (r *ConnectResponse) Decode(d *Decoder) {
	r.ProtocolVersion = d.Int32()
	r.TimeoutMs = d.Int32()
	r.SessionID = SessionID(d.Int64())
	r.Password = d.Buffer()
	r.ReadOnly, r.HasReadOnly = d.optionalBool()
}

// optionalBool reads a boolean that older clients leave out at the end of the record.
func (d *Decoder) optionalBool() (v, has bool) {
	if d.err != nil || d.Remaining() == 0 {
		return false, false
	}
	return d.Bool(), true
}
