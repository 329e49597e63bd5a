// Package mapsize keeps the memory of maps in proportion to their content.
package mapsize

// Shrink frees the memory of a map that was much larger once: maps never do so themselves, and with keys that come
// and go they even grow. most is its largest size since; it belongs to the map, and starts at 0. To be called now and
// then; it takes time only when it is worth it.
func Shrink[M ~map[K]V, K comparable, V any](m *M, most *int) {
	const small, rest = 64, 4
	*most = max(*most, len(*m))
	if *most < small || len(*m) > *most/rest {
		return
	}
	fresh := make(M, len(*m))
	for k, v := range *m {
		fresh[k] = v
	}
	*m, *most = fresh, len(fresh)
}
