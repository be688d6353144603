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
func (r *AuthPacket) Decode(d *Decoder) error {
	r.Type = d.Int32()
	r.Scheme = d.Text()
	r.Auth = d.Buffer()
	return d.Err()
}

// SASLRequest is the body of sasl.
type SASLRequest struct{ Token []byte }

// Append encodes r.
func (r SASLRequest) Append(b []byte) []byte { return appendBuffer(b, r.Token) }

// Decode reads r from d. Token aliases the input.
func (r *SASLRequest) Decode(d *Decoder) error {
	r.Token = d.Buffer()
	return d.Err()
}

// SASLResponse answers sasl. A null token says that this server has no SASL.
type SASLResponse struct{ Token []byte }

// Append encodes r.
func (r SASLResponse) Append(b []byte) []byte { return appendBuffer(b, r.Token) }

// Decode reads r from d. Token aliases the input.
func (r *SASLResponse) Decode(d *Decoder) error {
	r.Token = d.Buffer()
	return d.Err()
}

// ClientInfo is one identity of a connection, as whoAmI tells it.
type ClientInfo struct {
	AuthScheme string
	User       string // without secrets: only the part of a digest id before ":"
}

// Append encodes c.
func (c ClientInfo) Append(b []byte) []byte {
	return appendString(appendString(b, c.AuthScheme), c.User)
}

// Decode reads c from d. Null decodes as "".
func (c *ClientInfo) Decode(d *Decoder) error {
	c.AuthScheme = d.Text()
	c.User = d.Text()
	return d.Err()
}

// WhoAmIResponse answers whoAmI.
type WhoAmIResponse struct {
	Clients []ClientInfo // in any order; nil = null
}

// Append encodes r.
func (r WhoAmIResponse) Append(b []byte) []byte {
	if r.Clients == nil {
		return appendInt32(b, -1)
	}
	b = appendInt32(b, int32(len(r.Clients)))
	for _, c := range r.Clients {
		b = c.Append(b)
	}
	return b
}

// Decode reads r from d.
func (r *WhoAmIResponse) Decode(d *Decoder) error {
	n, null := d.Count(8) // two string lengths
	if null {
		r.Clients = nil
		return d.Err()
	}
	r.Clients = make([]ClientInfo, n)
	for i := range r.Clients {
		if err := r.Clients[i].Decode(d); err != nil {
			return err
		}
	}
	return d.Err()
}
