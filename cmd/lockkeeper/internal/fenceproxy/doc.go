// Package fenceproxy is the HTTP proxy of "lockkeeper fence": it stands before a resource that
// knows no fencing tokens, and refuses requests of holders that have lost the lock. Proxy is an
// http.Handler; turn is the order of the tokens in it.
//
// # Older requests in flight
//
// To refuse an older token is not enough. A request that was let through before the newer token
// came may still be under way to the resource, or at work in it, and would take effect after a
// request of the newer holder. So a request with a larger token waits until each older one has
// ended, and older ones are refused from then on:
//
//	token 33 ---------> resource ............ answer
//	token 34      waits ..................... |--------> resource
//	token 33            refused
//
// Only the end of the resource's answer shows that a request has ended. So the proxy goes on when
// the client of a request has left. A request that is cut off (the connection breaks, its time is
// over) may still be at work in the resource; it counts as in flight for Settle longer. The same
// holds for the requests of an earlier process of the proxy: after a start, a token that is larger
// than the remembered one waits for Settle. Settle is thus an assumption: the resource works on no
// request for longer than this after its connection has closed.
//
// Requests with the same token do not wait for each other.
//
// # Goroutines
//
// Each request has the goroutine of its connection. A request that is cut off leaves a timer, which
// ends after Settle.
package fenceproxy
