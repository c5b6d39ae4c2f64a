"""nbgrader's settings for this course: `source/` holds the masters, `student/` what is handed out.

`nbgrader generate_assignment memory --force`, called in this directory, makes the student version.
"""

c = get_config()  # noqa: F821 (nbgrader provides it)

c.CourseDirectory.course_id = "price-of-remembering"
c.CourseDirectory.source_directory = "source"
c.CourseDirectory.release_directory = "student"
c.IncludeHeaderFooter.header = ""
c.ClearSolutions.code_stub = {"python": "# YOUR CODE HERE\nraise NotImplementedError()"}
