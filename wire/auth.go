package wire

// AuthPacket is the body of auth.
type AuthPacket struct {
	Type   int32  // ignored
	Scheme string // null decodes as "": no provider answers to either
	Auth   []byte // nil = null, which digest refuses
}

// Append encodes r.
func (r AuthPacket) Append(b []byte) []byte {
	b = appendInt32(b, r.Type)
	b = appendString(b, r.Scheme)
	return appendBuffer(b, r.Auth)
}

// Decode reads r from d. Auth aliases the input.
func (r *AuthPacket) Decode(d *Decoder) { r.Type, r.Scheme, r.Auth = d.Int32(), d.Text(), d.Buffer() }

// SASLRequest is the body of sasl.
type SASLRequest struct{ Token []byte }

// Append encodes r.
func (r SASLRequest) Append(b []byte) []byte { return appendBuffer(b, r.Token) }

// Decode reads r from d. Token aliases the input.
func (r *SASLRequest) Decode(d *Decoder) { r.Token = d.Buffer() }

// SASLResponse answers sasl. A null token says that this server has no SASL, or that the login has
// failed.
type SASLResponse = SASLRequest

// ClientInfo is one identity of a connection in the answer to whoAmI.
type ClientInfo struct {
	AuthScheme string
	User       string // without secrets: only the part of a digest id before ":"
}

// Append encodes c.
func (c ClientInfo) Append(b []byte) []byte {
	return appendString(appendString(b, c.AuthScheme), c.User)
}

// Decode reads c from d. Null decodes as "".
func (c *ClientInfo) Decode(d *Decoder) { c.AuthScheme, c.User = d.Text(), d.Text() }

// WhoAmIResponse answers whoAmI.
type WhoAmIResponse struct {
	Clients []ClientInfo // in any order; nil = null
}

// Append encodes r.
func (r WhoAmIResponse) Append(b []byte) []byte {
	return appendVector(b, r.Clients, func(b []byte, c ClientInfo) []byte { return c.Append(b) })
}

// Decode reads r from d.
func (r *WhoAmIResponse) Decode(d *Decoder) {
	const minLen = 8 // two string lengths
	r.Clients = vector(d, minLen, func(d *Decoder) (c ClientInfo) {
		c.Decode(d)
		return c
	})
}
