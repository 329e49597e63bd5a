package plan

import (
	"fmt"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
)

// author is who has made sets: the namespace of the only policies that refer to them.
type author struct {
	namespace string
	staged    bool // only staged policies refer to them
}

// authors are the authors of the sets that programs refer to which judge packets or are to.
type authors struct {
	list     []author
	numbers  map[author]int
	author   map[uint32]int // by set: index in list, or NoAuthor
	refs     map[uint32]int // programs, by set
	programs [][]*program   // by author: those that refer to one of its sets, those with the most last, of equal ones the newest
	judging  map[*program]bool
	judged   map[uint32]bool // sets that programs refer to which judge packets

	somePending bool // a program does not judge packets yet
}

// madeBy are sets that rules of a program refer to which are policy of one author; the namespace is empty: of none.
type madeBy struct {
	author
	sets []uint32
}

// authorsOf finds them. Those in judging judge packets. A set has no author if policies of several namespaces refer to it, or one that belongs
// to no namespace. known has what was found out about programs, which may have very many rules.
func authorsOf(programs []*program, judging map[*program]bool, known map[*program][]madeBy) *authors {
	a := &authors{numbers: map[author]int{}, author: map[uint32]int{}, refs: map[uint32]int{}, judging: judging, judged: map[uint32]bool{}}
	var live []*program
	for _, prog := range programs {
		if prog.desired > 0 || judging[prog] {
			live = append(live, prog)
			a.somePending = a.somePending || !judging[prog]
			if _, ok := known[prog]; !ok {
				known[prog] = setsByAuthor(prog)
			}
			a.add(prog, known[prog])
		}
	}
	a.programs = make([][]*program, len(a.list))
	made := make([]map[*program]int, len(a.list)) // so many of its sets are by the author
	for _, prog := range live {
		for _, num := range prog.sets {
			by := a.author[num]
			if by < 0 {
				continue
			}
			if made[by] == nil {
				made[by] = map[*program]int{}
			}
			if made[by][prog]++; made[by][prog] == 1 {
				a.programs[by] = append(a.programs[by], prog)
			}
		}
	}
	for by, list := range a.programs {
		slices.SortStableFunc(list, func(x, y *program) int { return made[by][x] - made[by][y] })
	}
	return a
}

// add notes who has made the sets of a program.
func (a *authors) add(prog *program, made []madeBy) {
	for _, num := range prog.sets {
		a.refs[num]++
		if a.judging[prog] {
			a.judged[num] = true
		}
	}
	for _, of := range made {
		for _, num := range of.sets {
			a.note(num, of.author)
		}
	}
}

// setsByAuthor finds the sets that each author's rules in a program refer to.
func setsByAuthor(prog *program) (made []madeBy) {
	for from := 0; from < len(prog.Rules); {
		namespace, to := prog.IDs[from].Policy.Namespace, from+1
		for to < len(prog.Rules) && prog.IDs[to].Policy.Namespace == namespace {
			to++
		}
		made = append(made, madeBy{author{namespace, prog.Shadow}, match.SetNumbers(prog.Rules[from:to])})
		from = to
	}
	return made
}

// note notes that a policy of an author refers to a set.
func (a *authors) note(num uint32, of author) {
	by, known := a.author[num]
	switch {
	case of.namespace == "":
		a.author[num] = classes.NoAuthor
	case !known:
		a.author[num] = a.number(of)
	case by == classes.NoAuthor || a.list[by] == of:
	case a.list[by].namespace != of.namespace:
		a.author[num] = classes.NoAuthor
	default: // enforced and staged policies
		a.author[num] = a.number(author{namespace: of.namespace})
	}
}

func (a *authors) number(of author) int {
	n, known := a.numbers[of]
	if !known {
		n = len(a.list)
		a.numbers[of] = n
		a.list = append(a.list, of)
	}
	return n
}

// of returns the author of a set for classes.Shares.
func (a *authors) of(set uint32) int {
	if a.refs[set] == 0 {
		return classes.Leaving
	}
	return a.author[set]
}

// ranks of authors: those of a higher one are refused first.
const (
	rankNone    = iota
	rankSmall   // has policies that do not judge packets yet
	rankJudging // makes many combinations, by policies that all judge packets
	rankLarge   // makes many, and has policies that do not judge packets yet
)

// choose returns the author whose programs are to be refused, and its rank; negative: there is none. What does not judge packets yet is refused before what
// does. That is only refused if there is no room left, and never of an author with few combinations. While somebody has many, others may use
// what room there is.
func (a *authors) choose(shares []classes.Share, assured int, full bool) (best, rank int) {
	best = -1
	someJudging := false
	for by, share := range shares {
		if share.Added == 0 || len(a.programs[by]) == 0 {
			continue
		}
		is := rankNone
		switch pending, many := len(a.pending(by)) > 0, share.Alone > assured; {
		case many && pending:
			is = rankLarge
		case many:
			is, someJudging = rankJudging, true
		case pending:
			is = rankSmall
		}
		if is > rank || is == rank && is > rankNone && share.Added > shares[best].Added {
			best, rank = by, is
		}
	}
	if someJudging && !full && rank < rankLarge {
		return -1, rankNone
	}
	return best, rank
}

// pending are an author's programs that do not judge packets yet.
func (a *authors) pending(by int) (list []*program) {
	for _, prog := range a.programs[by] {
		if !a.judging[prog] {
			list = append(list, prog)
		}
	}
	return list
}

// last returns up to so many programs of an author: of those that do not judge packets yet, if there are any.
func (a *authors) last(by, most int) []*program {
	list := a.pending(by)
	if len(list) == 0 {
		list = a.programs[by]
	}
	return list[max(0, len(list)-most):]
}

// leave is for programs that are refused. It returns the sets that only these, and no program that judges packets, referred to.
func (a *authors) leave(refused []*program) (sets []uint32) {
	is := map[*program]bool{}
	for _, prog := range refused {
		is[prog] = true
		for _, num := range prog.sets {
			if a.refs[num]--; a.refs[num] == 0 && !a.judged[num] {
				sets = append(sets, num)
			}
		}
	}
	for by, list := range a.programs {
		var left []*program
		for _, prog := range list {
			if !is[prog] {
				left = append(left, prog)
			}
		}
		a.programs[by] = left
	}
	return sets
}

// tooMany says why programs of an author are refused.
func (a author) tooMany(total, most, added int) error {
	kind := "policies"
	if a.staged {
		kind = "staged policies"
	}
	return fmt.Errorf("%s of namespace %s: %w: addresses would be in %d combinations of sets, limit %d, and %d of these are there only because of "+
		"sets that no others refer to", kind, a.namespace, errNoRoom, total, most, added)
}
