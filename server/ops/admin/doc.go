// Package admin is ZooKeeper's AdminServer: the commands that a member answers over HTTP, below
// /commands, as JSON. Names, aliases, fields and their order are ZooKeeper's, so that programs
// which read them need no change (docs/admin.md has the differences).
//
// A Server is an http.Handler. It knows the member through the interface Member, and calls it from
// the goroutines of net/http. Reading is open to everybody, as in ZooKeeper, and has a bounded
// cost: a listing is as long as Config.MaxBytes allows, and only a few are made at a time. Commands
// that change something are for super users.
package admin
