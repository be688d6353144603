package wire

// CreateRequest is the body of create, create2 and createContainer.
type CreateRequest struct {
	Path string
	Data []byte     // nil = null, which is stored and is not the same as empty
	ACL  []ACL      // nil = null
	Mode CreateMode // any number
}

// Append encodes r.
func (r CreateRequest) Append(b []byte) []byte {
	b = appendString(b, r.Path)
	b = appendBuffer(b, r.Data)
	b = appendACLs(b, r.ACL)
	return appendInt32(b, int32(r.Mode))
}

// Decode reads r from d. Data aliases the input.
func (r *CreateRequest) Decode(d *Decoder) error {
	r.Path = d.Path()
	r.Data = d.Buffer()
	r.ACL = d.ACLs()
	r.Mode = CreateMode(d.Int32())
	return d.Err()
}

// CreateTTLRequest is the body of createTTL.
type CreateTTLRequest struct {
	Path string
	Data []byte // as in CreateRequest
	ACL  []ACL
	Mode CreateMode
	TTL  int64 // milliseconds; any number, sensible is 1..MaxTTLMs
}

// Append encodes r.
func (r CreateTTLRequest) Append(b []byte) []byte {
	b = CreateRequest{Path: r.Path, Data: r.Data, ACL: r.ACL, Mode: r.Mode}.Append(b)
	return appendInt64(b, r.TTL)
}

// Decode reads r from d. Data aliases the input.
func (r *CreateTTLRequest) Decode(d *Decoder) error {
	var c CreateRequest
	_ = c.Decode(d)
	*r = CreateTTLRequest{Path: c.Path, Data: c.Data, ACL: c.ACL, Mode: c.Mode, TTL: d.Int64()}
	return d.Err()
}

// CreateResponse answers create.
type CreateResponse struct {
	Path string // with the number appended to a sequential node
}

// Append encodes r.
func (r CreateResponse) Append(b []byte) []byte { return appendString(b, r.Path) }

// Decode reads r from d.
func (r *CreateResponse) Decode(d *Decoder) error {
	r.Path = d.Path()
	return d.Err()
}

// Create2Response answers create2, createContainer and createTTL.
type Create2Response struct {
	Path string
	Stat Stat
}

// Append encodes r.
func (r Create2Response) Append(b []byte) []byte { return r.Stat.Append(appendString(b, r.Path)) }

// Decode reads r from d.
func (r *Create2Response) Decode(d *Decoder) error {
	r.Path = d.Path()
	return r.Stat.Decode(d)
}
