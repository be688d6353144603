// Package door is the one door for HTTP: every request to a member, on the HTTP port and the port
// for metrics, passes the same chain before a handler sees it.
//
//	connection  slots     at most admin.maxCnxns, and admin.maxCnxnsPerAddress from one address
//	            framing   refuses requests with an ambiguous end
//	request     guard     host, origin, login, right; adds the Caller
//	            whole     the request has arrived completely, with a small body
//	            turn      one answer is made at a time, with rests (Pace)
//	handler               reads CallerOf, and answers with WriteJSON
//
// A Door also has the memory that answers may take (Door.Hold), and writes the acts of operators to
// the audit log (Door.AuditAct). Package server makes one Door and calls Door.Open for each port;
// handlers run in the goroutines of net/http, which Port.Stop waits for.
package door
