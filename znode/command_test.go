package znode

// req is the request in c; an empty one if c is another kind of command.
func (c *Command) req() *Request {
	if r, ok := c.Body.(*Request); ok {
		return r
	}
	return new(Request)
}

// by is the new connection in c; an empty one if c has none.
func (c *Command) by() *Connection {
	switch b := c.Body.(type) {
	case *CreateSession:
		return &b.Connection
	case *Attach:
		return &b.Connection
	}
	return new(Connection)
}
