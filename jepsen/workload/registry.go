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

// Names are what New knows.
func Names() []string {
	var names []string
	for _, w := range workloads {
		names = append(names, w.name)
	}
	return names
}

// Steady reports whether the clients of a workload complete operations all the time, unless something is broken: those
// of belief only watch, and now and then cut themselves off.
func Steady(name string) bool { return name != beliefName }

// New is a workload for one run.
func New(name string) (Workload, error) {
	for _, w := range workloads {
		if w.name == name {
			return w.make(), nil
		}
	}
	return nil, fmt.Errorf("workload: there is no workload %q; there are %s", name, strings.Join(Names(), ", "))
}
