package workload

import (
	"fmt"
	"strings"
)

// workloads are all of them, in the order in which they are listed.
var workloads = []struct {
	name string
	make func() Workload
}{
	{registerName, func() Workload { return newRegister() }},
	{orderName, func() Workload { return order{} }},
	{beliefName, func() Workload { return belief{} }},
	{lockName, func() Workload { return new(lock) }},
	{onceName, func() Workload { return once{} }},
	{ephemeralName, func() Workload { return ephemeral{} }},
	{durabilityName, func() Workload { return durability{} }},
}

// Libraries is the name of a workload that New knows, too. It starts processes with client
// libraries of other languages (Env.Libraries), which not every machine has and no simulation can
// hold: Names is without it.
const Libraries = librariesName

// Names are the workloads that need nothing beyond this program.
func Names() []string {
	var names []string
	for _, w := range workloads {
		names = append(names, w.name)
	}
	return names
}

// Steady reports whether the clients of a workload complete operations all the time, unless
// something is broken: those of belief only watch, and now and then cut themselves off; and what
// those of libraries do after an error is up to the libraries.
func Steady(name string) bool { return name != beliefName && name != librariesName }

// New is a workload for one run.
func New(name string) (Workload, error) {
	for _, w := range workloads {
		if w.name == name {
			return w.make(), nil
		}
	}
	if name == librariesName {
		return libraries{}, nil
	}
	return nil, fmt.Errorf("workload: there is no workload %q; there are %s, %s", name, strings.Join(Names(), ", "), librariesName)
}
