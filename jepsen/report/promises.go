package report

import (
	"fmt"
	"slices"
	"strings"

	"lockkeeper/jepsen/workload"
)

// A promise is a clause of the contract, in a line for people who have not read it, and the command
// that checks it, if jepsen run does not.
type promise struct{ Name, Text, Elsewhere string }

var promises = []promise{
	{Name: "C1", Text: "An answered write is never lost: it is on disk on a majority of the members, and all members " +
		"make all writes in one order. A disk that comes back empty or older does not count."},
	{Name: "C2", Text: "The requests of a session take effect in the order in which they were sent, and it reads its " +
		"own writes, also after it moved to another member."},
	{Name: "C3", Text: "A client is told of a change that it watches before it can see anything newer."},
	{Name: "C4", Text: "A sync and then a read give the newest value, whichever member leads, or thinks so."},
	{Name: "C5", Text: "Each request takes effect exactly once while its connection lives, and a change of the leader " +
		"closes no connection to the other members. Clients get on while a majority can act."},
	{Name: "C6", Text: "A client that is cut off knows it before its locks are given to another: two never believe " +
		"that they hold one lock."},
	{Name: "C7", Text: "All ephemeral nodes of a session vanish together, when it was closed or has expired, and never " +
		"earlier."},
	{Name: "C8", Text: "A wall clock that jumps ends no session and keeps none alive, on whichever member.",
		Elsewhere: "with -nemesis clock and -workload ephemeral"},
	{Name: "C9", Text: "Bad or hostile input stops no member and harms no other client: each request has a bounded " +
		"cost.", Elsewhere: "by jepsen attack"},
}

// checks are the checkers of jepsen run, in a line each.
var checks = map[string]string{
	"replicas":      "When all is over, each member is asked for the digest of its data.",
	"progress":      "While a majority can act, no client is without a completed operation for too long.",
	"statements":    "An operator asks for status, locks and readiness; each answer is compared with the truth.",
	"register":      "There is an order of the reads, writes and compare-and-sets that explains each answer.",
	"session-order": "Clients move between members with requests under way, and look at the order of the answers.",
	"belief":        "Clients record when their library takes itself for connected, and when another sees their node go.",
	"lock":          "Clients take locks by each recipe, and write to a resource that checks the fencing tokens.",
	"hold":          "Clients keep one lock for long, as a service that leads does.",
	"libraries":     "Clients take locks by kazoo, Curator and go-zookeeper.",
	"kills":         "Each time the leader is killed, the clients of the other members keep their connections.",
	"exactly-once":  "Clients send sequential creates and unconditional sets, many at once, and count the effects.",
	"ephemeral":     "Sessions end in every way, while others list their nodes behind a sync.",
	"durability":    "What was answered is there at the end, and nothing that was refused.",
	"protocol":      "Each durable write, request and answer of the members is a step of the model of the protocol.",
}

// A promiseView is a promise, and the verdicts about it.
type promiseView struct {
	promise
	Valid    workload.Valid // empty if nothing checked it
	Verdicts []workload.Verdict
}

// viewPromises are all promises, with the verdicts of the checkers; nil if no checker names one.
func viewPromises(verdicts []workload.Verdict) []promiseView {
	var views []promiseView
	any := false
	for _, p := range promises {
		view := promiseView{promise: p}
		for _, v := range verdicts {
			if slices.Contains(strings.Split(v.Promise, ", "), p.Name) {
				view.Verdicts = append(view.Verdicts, v)
			}
		}
		if len(view.Verdicts) > 0 {
			any = true
			view.Valid = (&Run{Verdicts: view.Verdicts}).Valid()
		}
		views = append(views, view)
	}
	if !any {
		return nil
	}
	return views
}

// checkedOn says how much the verdicts about a promise are about.
func checkedOn(verdicts []workload.Verdict) string {
	if len(verdicts) > maxVerdicts {
		return fmt.Sprintf("%d cases", len(verdicts))
	}
	var parts []string
	for _, v := range verdicts {
		part := v.Checker
		if v.Unit != "" {
			part = count(v.Checked) + " " + v.Unit + " (" + v.Checker + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// maxVerdicts bounds the verdicts that a promise names.
const maxVerdicts = 8

// count is a number as people read it: 12,074.
func count(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
