package model

// Walk takes a random walk of at most this many steps from the first state, until a state breaks an
// invariant or has no successor. It chooses an action, then one of its steps, so that no action is
// rare because it has few operands. The same seed takes the same walk.
func Walk(m *Model, seed uint64, length int) (script []Step, broken Invariant) {
	s := m.First()
	random := func(n int) int {
		seed = mix(seed, uint64(len(script)))
		return int(seed >> 33 % uint64(n))
	}
	for len(script) < length && s.Broken == Kept {
		var steps [NumActions][]Step
		var actions []Action
		m.Next(&s, func(_ *State, step Step) {
			if len(steps[step.Action]) == 0 {
				actions = append(actions, step.Action)
			}
			steps[step.Action] = append(steps[step.Action], step)
		})
		if len(actions) == 0 {
			break
		}
		of := steps[actions[random(len(actions))]]
		step := of[random(len(of))]
		s, _ = m.Take(&s, step)
		script = append(script, step)
	}
	return script, s.Broken
}

// Shorten leaves out steps of a script that breaks an invariant, as long as the rest breaks it too.
func Shorten(m *Model, script []Step) []Step {
	end, err := m.Follow(script)
	if err != nil || end.Broken == Kept {
		return script
	}
	for size := len(script) / 2; size > 0; {
		shorter := false
		for i := 0; i+size <= len(script); i++ {
			rest := append(append([]Step(nil), script[:i]...), script[i+size:]...)
			if s, err := m.Follow(rest); err == nil && s.Broken == end.Broken {
				script, shorter = rest, true
			}
		}
		if !shorter {
			size /= 2
		}
	}
	return script
}
