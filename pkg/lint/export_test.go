package lint

// CheckWith is Check with other limits of what is compiled.
var CheckWith = check
